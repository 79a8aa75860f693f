#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "catch.hpp"
#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/quantize.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "common/tensors.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/tensor.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const RandomStream kRandom(7, "common test");

}  // namespace

TEST_CASE("an axis in decades has both of its ends", "[experiments]") {
  const auto steps = [](double from, double to, double per_decade) {
    return log_steps("scale", {from, to, per_decade});
  };
  CHECK(steps(2.0, 2.0, 1.0) == std::vector{100.0});
  CHECK(steps(-1.0, 1.0, 1.0) == std::vector{0.1, 1.0, 10.0});
  CHECK(steps(0.0, 1.0, 4.0).size() == 5);
  CHECK_THROWS_WITH(steps(2.0, 1.9, 1.0), contains("scale_to: expected at least scale_from = 2"));
}

TEST_CASE("log-uniform tensors span their decades and no more", "[experiments]") {
  const TensorStatistics s = tensor_statistics(log_uniform(kRandom, 20000, 5.0));
  CHECK(s.amax <= 1.0);
  CHECK(s.min_nonzero >= static_cast<double>(1e-5F));
  CHECK(s.decades > 4.99);
}

TEST_CASE("log-normal tensors put 99.73 % inside their decades", "[experiments]") {
  const std::vector<float> x = log_normal(kRandom, 20000, 6.0);
  int inside = 0;
  for (const float v : x) inside += std::abs(v) > 1e-3F && std::abs(v) < 1e3F ? 1 : 0;
  CHECK(inside > 19900);
  CHECK(inside < 19990);
}

TEST_CASE("rows of a log-normal tensor share what they are told to", "[experiments]") {
  const std::vector<float> equal = log_normal_rows(kRandom, 4, 8, 6.0, 1.0);
  std::set<float> magnitudes;
  for (const float v : equal) magnitudes.insert(std::abs(v));
  CHECK(magnitudes.size() == 4);
  const std::vector<float> free = log_normal_rows(kRandom, 4, 8, 6.0, 0.0);
  magnitudes.clear();
  for (const float v : free) magnitudes.insert(std::abs(v));
  CHECK(magnitudes.size() == 32);
  CHECK_THROWS_WITH(log_normal_rows(kRandom, 4, 8, 6.0, 1.5), contains("row_share"));
}

TEST_CASE("outlier channels are few, one-sided, and the same in every row", "[experiments]") {
  const OutlierChannels shape{.rows = 64, .channels = 32, .outlier_channels = 3};
  const std::vector<float> x = outlier_channels(kRandom, shape);
  std::set<std::size_t> positive;
  std::set<std::size_t> negative;
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x[i]) < 10.0F) continue;  // 10 sigma of the bulk, 4 below the outliers
    ++count;
    (x[i] > 0.0F ? positive : negative).insert(i % shape.channels);
  }
  CHECK(positive.size() + negative.size() == 3);
  CHECK(count > 3 * 64 * 6 / 10);
  CHECK(count < 3 * 64 * 9 / 10);
  CHECK_THROWS_AS(outlier_channels(kRandom, {.rows = 1, .channels = 2, .outlier_channels = 3}),
                  Error);
}

TEST_CASE("quantization follows the amax of each block", "[experiments]") {
  const Format& f = format(FormatId::e4m3fn);
  const std::vector<float> x{1.0F,   0.5F, 100.0F, 0.0F,  //
                             448.0F, 2.0F, 0.0F,   0.0F};
  const Quantized q = quantize(x, 2, 4, tile(2), f, kNvidiaSatfinite);
  CHECK(q.inverse_scales ==
        std::vector<float>{1.0F / 448.0F, 1.0F / (448.0F / 100.0F), 1.0F, 1.0F});
  CHECK(q.scaled == std::vector<float>{448.0F, 224.0F, 448.0F, 0.0F, 448.0F, 2.0F, 0.0F, 0.0F});
  CHECK(q.codes[0] == 0x7e);
  const Quantized square = quantize(x, 2, 4, {2, 3}, f, kNvidiaSatfinite);
  CHECK(square.inverse_scales == std::vector<float>{1.0F, 1.0F});
  CHECK(square.values == std::vector<float>{1.0F, 0.5F, 96.0F, 0.0F, 448.0F, 2.0F, 0.0F, 0.0F});
  const Quantized whole = quantize(x, 0, format(FormatId::bf16), kNvidiaSatfinite);
  CHECK(whole.inverse_scales.size() == 1);
  CHECK(whole.codes.empty());
  CHECK_THROWS_WITH(quantize(x, 3, 4, kPerTensor, f, kNvidiaSatfinite),
                    contains("3 * 4 elements, got 8"));
}

TEST_CASE("a block without a usable amax has scale 1", "[experiments]") {
  const Format& f = format(FormatId::e4m3fn);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto inverse_of = [&](float x, const CastPolicy& policy) {
    return quantize(std::vector<float>{x}, 0, f, policy).inverse_scales[0];
  };
  CHECK(inverse_of(0.0F, kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(kInf, kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(std::numeric_limits<float>::quiet_NaN(), kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(0x1p-149F, kNvidiaSatfinite) == 1.0F / std::numeric_limits<float>::max());
  CHECK(inverse_of(2.0F, kSeedToy) == 1.0F / 120.0F);
  const Quantized q = quantize(std::vector<float>{3.0F, kInf, 2.0F, 1.0F}, 2, f, kNvidiaSatfinite);
  CHECK(q.scaled == std::vector<float>{3.0F, 448.0F, 448.0F, 224.0F});
}

TEST_CASE("a failing point of a parallel loop is reported", "[experiments]") {
  RunContext context;
  context.threads = 2;
  double last = 0.0;
  context.on_progress = [&](double fraction) { last = fraction; };
  std::vector<int> seen(64);
  parallel_points(context, seen.size(), [&](std::size_t i) { seen[i] = 1; });
  CHECK(seen == std::vector<int>(64, 1));
  CHECK(last == 1.0);
  CHECK_THROWS_WITH(parallel_points(context, 8,
                                    [](std::size_t i) {
                                      if (i == 5) throw Error("point", "any but 5", "5");
                                    }),
                    contains("any but 5"));
}

TEST_CASE("an interval over repeats is Student's t of one more draw", "[experiments]") {
  const std::vector<double> draws{1.0, 2.0, 3.0};
  const Interval interval = interval_of(draws);
  CHECK(interval.mean == 2.0);
  CHECK(std::abs(interval.half_width - 9.925 * std::sqrt(4.0 / 3.0)) < 1e-12);
  CHECK(std::isnan(interval_of(std::vector{5.0}).half_width));
  CHECK(interval_text(draws) == "2 ± 11");
  CHECK(interval_text(draws, 100.0) == "200 ± 1100");
  CHECK(interval_text(std::vector{0.5}) == "0.5");
  CHECK(interval_text(std::vector{0.0, 0.0}, 100.0, share_resolution(300)) == "0 ± 1");
  // Shares stay between 0 and 100 %, and say so in another form.
  CHECK(share_text(std::vector{0.4, 0.4}, 100.0, 0.25) == "40 ± 25 %");
  CHECK(share_text(std::vector{40.0, 40.0}, 1.0, 25.0) == "40 ± 25 %");
  CHECK(share_text(std::vector{0.125, 0.125}, 100.0, 0.25) == "12.5 % (0 to 37.5)");
  CHECK(share_text(std::vector{1.0, 1.0}, 100.0, 0.25) == "100 % (75 to 100)");
  CHECK(share_text(std::vector{0.25, 0.25}, 100.0, 0.25) == "25 ± 25 %");
  CHECK(share_text(std::vector{0.5}) == "50 %");
  CHECK(std::abs(student_t_995(11) - 3.106) < 0.011);
  CHECK(std::abs(student_t_995(20) - 2.845) < 0.002);
  CHECK(std::abs(student_t_995(1000) - 2.581) < 0.002);
  // Of many draws of one normal distribution, 99 % lie in the interval of five others.
  const RandomStream random(11, "tests/interval");
  int inside = 0;
  for (std::uint64_t trial = 0; trial < 4000; ++trial) {
    std::vector<double> five;
    for (std::uint64_t i = 0; i < 5; ++i) five.push_back(random.normal(6 * trial + i));
    const Interval of_five = interval_of(five);
    if (std::abs(random.normal(6 * trial + 5) - of_five.mean) <= of_five.half_width) ++inside;
  }
  CHECK(inside > 3930);
  CHECK(inside < 3985);
}

TEST_CASE("a thinned line keeps what lasts one step", "[experiments]") {
  std::vector<double> y(10'000, 1.0);
  y[1234] = 9.0;
  y[1235] = -9.0;
  const Series series = thinned("y", y);
  CHECK(series.x.size() <= 1002);
  CHECK(*std::max_element(series.y.begin(), series.y.end()) == 9.0);
  CHECK(*std::min_element(series.y.begin(), series.y.end()) == -9.0);
  for (std::size_t i = 0; i < series.x.size(); ++i)
    CHECK(series.y[i] == y[static_cast<std::size_t>(series.x[i])]);
  CHECK(std::is_sorted(series.x.begin(), series.x.end()));
  CHECK(thinned("y", {3.0, 1.0, 2.0}).y == std::vector{3.0, 1.0, 2.0});
}
