#include "fp8lab/metrics/tensor.hpp"

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("tensor statistics see finite elements and count the others", "[metrics]") {
  const std::vector<float> x{0.0F, -0.0F, 0.01F, -100.0F, kInf, kNaN};
  const TensorStatistics s = tensor_statistics(x);
  CHECK(s.count == 6);
  CHECK(s.zeros == 2);
  CHECK(s.non_finite == 2);
  CHECK(s.zero_share() == 2.0 / 6.0);
  CHECK(s.amax == 100.0);
  CHECK(s.min_nonzero == static_cast<double>(0.01F));
  CHECK(s.decades == std::log10(100.0 / static_cast<double>(0.01F)));
  CHECK(s.rms == std::sqrt((10000.0 + std::pow(static_cast<double>(0.01F), 2)) / 4.0));
}

TEST_CASE("statistics of tensors without a number are zeros", "[metrics]") {
  for (const std::vector<float>& x :
       {std::vector<float>{}, std::vector<float>{0.0F}, std::vector<float>{kNaN, -kInf}}) {
    const TensorStatistics s = tensor_statistics(x);
    CHECK(s.amax == 0.0);
    CHECK(s.min_nonzero == 0.0);
    CHECK(s.decades == 0.0);
    CHECK(s.rms == 0.0);
  }
}

TEST_CASE("subnormal binary32 elements count as non-zero", "[metrics]") {
  const TensorStatistics s = tensor_statistics(std::vector<float>{0x1p-149F, 1.0F});
  CHECK(s.zeros == 0);
  CHECK(s.min_nonzero == 0x1p-149);
}

TEST_CASE("quantiles interpolate between magnitudes", "[metrics]") {
  const std::vector<float> x{-3.0F, 1.0F, kNaN, 0.0F, 2.0F, kInf};
  CHECK(magnitude_quantiles(x, std::vector<double>{0.0, 0.5, 1.0, 0.25, 0.1}) ==
        std::vector<double>{0.0, 1.5, 3.0, 0.75, 0.1 * 3.0});
  CHECK(std::isnan(magnitude_quantiles({}, std::vector<double>{0.5})[0]));
  CHECK_THROWS_WITH(magnitude_quantiles(x, std::vector<double>{1.5}), contains("0 to 1"));
  CHECK_THROWS_WITH(magnitude_quantiles(x, std::vector<double>{0.5, -0.1}), contains("0 to 1"));
  CHECK_THROWS_WITH(magnitude_quantiles(x, std::vector<double>{std::nan("")}), contains("0 to 1"));
}

TEST_CASE("quantization loss counts what a cast took", "[metrics]") {
  const Format& f = format(FormatId::e4m3fn);
  // With scale 2: 464 rounds to 448, 448 fits exactly, 465 overflows and saturates,
  // 2^-11 underflows, 2^-9 is the smallest subnormal.
  const std::vector<float> x{232.0F, 224.0F, 232.5F, 0x1p-12F, 0x1p-10F, 0.0F, kInf, kNaN};
  std::vector<std::uint8_t> codes;
  for (const float element : x)
    codes.push_back(static_cast<std::uint8_t>(encode(f, kNvidiaSatfinite, element * 2.0F)));
  const QuantizationLoss loss = quantization_loss(x, codes, f, std::vector<float>{2.0F});
  CHECK(loss.count == 8);
  CHECK(loss.underflow_percent == 100.0 / 8.0);
  CHECK(loss.overflow_percent == 200.0 / 8.0);
  CHECK(loss.saturated_percent == 400.0 / 8.0);
  CHECK(loss.nan_percent == 100.0 / 8.0);
}

TEST_CASE("a zero that became NaN is no underflow", "[metrics]") {
  const std::vector<float> x{0.0F, 0.0F, 1e-9F, 1.0F};
  const std::vector<std::uint8_t> codes{0x7f, 0x7f, 0x00, 0x38};
  const QuantizationLoss loss =
      quantization_loss(x, codes, format(FormatId::e4m3fn), std::vector<float>{1.0F});
  CHECK(loss.underflow_percent == 25.0);
  CHECK(loss.nan_percent == 50.0);
}

TEST_CASE("what rounds to max finite has not overflowed", "[metrics]") {
  const std::vector<float> one{1.0F};
  const auto overflows = [&](FormatId id, float value) {
    const std::vector<float> x{value};
    const std::vector<std::uint8_t> codes{0};
    return quantization_loss(x, codes, format(id), one).overflow_percent == 100.0;
  };
  const std::vector<std::pair<FormatId, float>> first{
      {FormatId::e4m3fn, std::nextafter(464.0F, 500.0F)},
      {FormatId::e5m2, 61440.0F},
      {FormatId::e4m3fnuz, 248.0F}};
  for (const auto& [id, value] : first) {
    INFO(format(id).name);
    CHECK(overflows(id, value));
    CHECK(!overflows(id, std::nextafter(value, 0.0F)));
    // The cast says the same.
    CHECK(cast(format(id), kNvidiaSatfinite, value).overflowed);
    CHECK(!cast(format(id), kNvidiaSatfinite, std::nextafter(value, 0.0F)).overflowed);
  }
}

TEST_CASE("quantization loss uses the scale of an element's tile", "[metrics]") {
  const Format& f = format(FormatId::e5m2);
  const std::vector<float> x{1.0F, 62000.0F, 1.0F, 62000.0F, 1.0F};
  const std::vector<std::uint8_t> codes(5, 0x3c);
  const std::vector<float> scales{1.0F, 0.5F, 62000.0F};
  CHECK(quantization_loss(x, codes, f, scales, 2).overflow_percent == 200.0 / 5.0);
  CHECK(quantization_loss({}, {}, f, {}, 2).count == 0);
  CHECK_THROWS_WITH(quantization_loss(x, codes, f, scales, 3),
                    contains("ceil(5 / 3) = 2 scales") && contains("got 3"));
  CHECK_THROWS_WITH(quantization_loss(x, codes, format(FormatId::bf16), scales, 2),
                    contains("an 8-bit format"));
}

TEST_CASE("quantiles of any number of magnitudes lie on straight lines between them", "[metrics]") {
  for (std::size_t count = 1; count <= 9; ++count) {
    std::vector<float> x;
    for (std::size_t i = 0; i < count; ++i)  // squares, so that no two steps are alike
      x.push_back(static_cast<float>((i + 1) * (i + 1)) * (i % 2 == 0 ? -1.0F : 1.0F));
    x.insert(x.begin() + static_cast<std::ptrdiff_t>(count / 2), kNaN);
    std::vector<double> probabilities;
    std::vector<double> expected;
    for (int step = 0; step <= 64; ++step) {
      probabilities.push_back(static_cast<double>(step) / 64.0);
      const double position = probabilities.back() * static_cast<double>(count - 1);
      const double below = std::floor(position) + 1.0;
      const double above = std::ceil(position) + 1.0;
      expected.push_back(below * below +
                         (position + 1.0 - below) * (above * above - below * below));
    }
    INFO(count << " magnitudes");
    CHECK(magnitude_quantiles(x, probabilities) == expected);
  }
}
