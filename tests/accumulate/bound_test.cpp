// The steps of an error bound, each with both sides of its limits.

#include "fp8lab/accumulate/bound.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/model.hpp"

using namespace fp8lab;

TEST_CASE("bounds: a sum overflows from the largest number of its format on", "[accumulate]") {
  for (const FormatId id : {FormatId::f16, FormatId::f32}) {
    const double largest = format(id).max_finite();
    const double below = std::nextafter(largest, 0.0);
    struct Case {
      BoundedSum sum;
      bool overflows;
    };
    for (const Case& c :
         {Case{{below, 0.0}, false}, Case{{largest, 0.0}, true}, Case{{-below, 0.0}, false},
          Case{{-largest, 0.0}, true}, Case{{0.5 * largest, 0.25 * largest}, false},
          Case{{0.5 * largest, 0.5 * largest}, true}, Case{{-0.5 * largest, 0.5 * largest}, true},
          Case{{std::numeric_limits<double>::quiet_NaN(), 0.0}, true}}) {
      BoundedSum sum = c.sum;
      sum.check_range(id);
      INFO(format(id).name << ": " << c.sum.value << " +- " << c.sum.error);
      CHECK(sum.overflows == c.overflows);
      sum.value = sum.error = 0.0;
      sum.check_range(id);
      CHECK(sum.overflows == c.overflows);  // once too large, always
    }
  }
}

TEST_CASE("bounds: rounding adds half a unit, and half a step of FP16's subnormals",
          "[accumulate]") {
  for (const double value : {3.0, -3.0}) {
    BoundedSum half{value, 1.0};
    half.round_to(FormatId::f16);
    CHECK(half.value == value);
    CHECK(half.error == 1.0 + 4.0 * 0x1p-11 + 0x1p-25);
    BoundedSum single{value, 1.0};
    single.round_to(FormatId::f32);
    CHECK(single.value == value);
    CHECK(single.error == 1.0 + 4.0 * 0x1p-24);
  }
}

TEST_CASE("bounds: an addition takes the other's error and its overflow along", "[accumulate]") {
  BoundedSum sum{3.0, 0.25};
  sum.add_rounded({-5.0, 0.5}, FormatId::f32);
  const double before = 0.75 + 0x1p-52 * 2.0;
  CHECK(sum.value == -2.0);
  CHECK(sum.error == before + (2.0 + before) * 0x1p-24);
  CHECK_FALSE(sum.overflows);
  sum.add_rounded({1.0, 0.0, true}, FormatId::f32);
  CHECK(sum.overflows);
  BoundedSum large{40000.0, 0.0};
  large.add_rounded({30000.0, 0.0}, FormatId::f16);
  CHECK(large.overflows);
}

TEST_CASE("bounds: exact terms cost FP64's error of their magnitudes", "[accumulate]") {
  const std::vector<BoundedTerm> terms{{4.0, 2, false}, {-1.0, 0, true}, {0.0, 9, true}};
  BoundedSum sum{-2.0, 0.5};
  CHECK(sum.add_exactly(terms) == 5.0);
  CHECK(sum.value == 1.0);
  CHECK(sum.error == 0.5 + 3.0 * 0x1p-52 * 7.0);
  CHECK(flushed_error(terms) == 1.0);  // of the subnormal terms alone
  const Alignment with_sum = bounded_alignment(terms, {-7.0, 1.0});
  CHECK(with_sum.largest == 3);  // 7 + 1 is 2^3
  CHECK(with_sum.live == 3);
  const Alignment without = bounded_alignment(terms, {0.0, 0.0});
  CHECK(without.largest == 2);  // zeros have no exponent
  CHECK(without.live == 2);
}

TEST_CASE("bounds: a start is rounded where the unit's sums are FP16", "[accumulate]") {
  AccumulatorModel model = find_instruction_model("fp32").accumulator;
  CHECK(bounded_start(model, 3.0).error == 0.0);
  model.output_format = FormatId::f16;
  CHECK(bounded_start(model, 3.0).error == 3.0 * 0x1p-11 + 0x1p-25);
  CHECK(bounded_start(model, 3.0).value == 3.0);
}

TEST_CASE("bounds: products below a subnormal c are lost where FP16's least exponent aligns them",
          "[accumulate]") {
  // Steps of 2^(-14 - 11): each product of just below 2^-25 becomes zero, though c is but 2^-24.
  const AccumulatorModel model = find_instruction_model("sm80.mma.f16.f16:F=11").accumulator;
  const auto count = static_cast<std::size_t>(model.terms);
  const std::vector<std::uint32_t> a(count, 0x0fff);  // (2 - 2^-10) * 2^-12
  const std::vector<std::uint32_t> b(count, 0x0400);  // 2^-14
  const double product = (2.0 - 0x1p-10) * 0x1p-26;
  const double lost = static_cast<double>(count) * product;
  CHECK(dot_product(model, FormatId::f16, a, FormatId::f16, b, 0x1p-24F) == 0x1p-24F);
  BoundedSum sum = bounded_start(model, 0x1p-24);
  bounded_dot_product(model, std::vector<BoundedTerm>(count, {product, -26, false}), sum);
  CHECK(std::abs(sum.value - 0x1p-24 - lost) < 1e-18);
  CHECK(lost <= sum.error);
  CHECK(sum.error < 2.0 * lost);
}

TEST_CASE("bounds: sums below FP32's least normal number have an error of half its least",
          "[accumulate]") {
  // Three eighths of 2^-149 become 0, five eighths become 2^-149: relative errors say nothing here.
  for (const char* name : {"exact", "fp32", "sequential14.rne", "gfx942.mfma.f32", "sm80.mma.bf16",
                           "sm90.wgmma.bf16"}) {
    const AccumulatorModel model = find_instruction_model(name).accumulator;
    for (const double eighths : {3.0, 5.0}) {
      BoundedSum sum = bounded_start(model, 0.0);
      bounded_dot_product(model, std::vector<BoundedTerm>{{eighths * 0x1p-152, -150, false}}, sum);
      INFO(name << ", " << eighths);
      CHECK(sum.error >= 3.0 * 0x1p-152);
      CHECK(sum.error < 0x1p-120);
    }
  }
}

TEST_CASE("bounds: FP32 additions overflow on the way to a sum that fits", "[accumulate]") {
  // 2^127 twice is an infinity, which stays when 2^127 is taken away twice.
  const AccumulatorModel model = find_instruction_model("fp32").accumulator;
  const std::vector<std::uint32_t> a{0x7f00, 0x7f00, 0xff00, 0xff00};
  const std::vector<std::uint32_t> b(4, 0x3f80);
  CHECK(std::isinf(dot_product(model, FormatId::bf16, a, FormatId::bf16, b, 0.0F)));
  const BoundedTerm one{0x1p127, 127, false};
  const BoundedTerm minus{-0x1p127, 127, false};
  BoundedSum sum = bounded_start(model, 0.0);
  bounded_dot_product(model, std::vector<BoundedTerm>{one, one, minus, minus}, sum);
  CHECK(sum.value == 0.0);
  CHECK(sum.overflows);

  BoundedSum fits = bounded_start(model, 0.0);
  bounded_dot_product(model, std::vector<BoundedTerm>{one, minus, one, minus}, fits);
  CHECK_FALSE(fits.overflows);
}

namespace {

const std::vector<BoundedTerm> kTerms{
    {4.0, 2, false}, {-1.5, 1, true}, {0.0, 9, true}, {0.25, -2, false}};
constexpr BoundedSum kStart{3.0, 0.5};
// Of these: the magnitudes, and how far partial sums with the start reach, errors included.
constexpr double kMagnitude = 5.75;
constexpr double kSum = 5.75;
constexpr double kReached = (7.0 + 0.5) + (5.5 + 0.5) + (5.75 + 0.5);
constexpr double kExactly = 0.5 + 4.0 * 0x1p-52 * (3.0 + kMagnitude);

BoundedSum bound_of(const char* name, const std::vector<BoundedTerm>& terms,
                    BoundedSum sum = kStart) {
  bounded_dot_product(find_instruction_model(name).accumulator, terms, sum);
  return sum;
}

/// How far `got` is from `expected`, as a share of it.
double off(double got, double expected) { return std::abs(got - expected) / expected; }

/// What a fused step makes of an error: `live` terms lose a unit, then the sum is rounded.
double after_step(double error, double sum, int live, int largest, int f, int m, double least) {
  error += live * std::ldexp(1.0, largest - f);
  return error + std::ldexp(std::abs(sum) + error, -m) + least;
}

}  // namespace

TEST_CASE("bounds: a step of each unit costs what its rule says", "[accumulate]") {
  const auto rounded = [](double error) { return error + (kSum + error) * 0x1p-24; };
  const double stages = kExactly + (4 + 4) * std::ldexp(1.0, 2 - 24);
  const double two_stages = stages + 2.0 * (kSum + stages) * 0x1p-24 + 0x1p-149;
  const double flushed = kExactly + 1.5 + 4.0 * kMagnitude * 0x1p-24;
  // FP16 halves: the first two terms, then the others, both from zero.
  const double first = after_step(2.0 * 0x1p-52 * 5.5, 2.5, 2, 2, 25, 23, 0x1p-149);
  const double both = after_step(first + 2.0 * 0x1p-52 * 2.75, 2.75, 2, 1, 25, 23, 0x1p-149);
  const double second = after_step(2.0 * 0x1p-52 * 0.25, 0.25, 1, -2, 25, 23, 0x1p-149);
  const auto added = [](double sum, double sum_error, double other, double error) {
    const double e = sum_error + error + 0x1p-52 * std::abs(sum + other);
    return e + (std::abs(sum + other) + e) * 0x1p-24;
  };
  const double apart = added(2.5, added(0.0, 0.0, 2.5, first), 0.25, second);
  // Products that are rounded first: each has an error of its own before it is reached.
  const double products = 0.5 + (4.0 + 1.5 + 0.25) * 0x1p-3;
  const double reached = (7.0 + 0.5) + (5.5 + 1.0) + (5.75 + 1.1875);
  const std::vector<std::pair<const char*, double>> expected{
      {"sm90.wgmma.e4m3", after_step(kExactly, kSum, 4, 2, 13, 13, 0x1p-149)},
      {"sm90.wgmma.e4m3:e_min=7", after_step(kExactly, kSum, 4, 7, 13, 13, 0x1p-149)},
      {"sm90.wgmma.e4m3.f16", after_step(kExactly, kSum, 4, 2, 13, 10, 0x1p-24)},
      {"sm100.tcgen05.mxf8f6f4.e4m3", after_step(kExactly, kSum, 4, 2, 25, 23, 0x1p-149)},
      {"sm100.tcgen05.mxf4nvf4", after_step(kExactly, kSum, 4, 2, 35, 23, 0x1p-149)},
      {"sm90.mma.e4m3", added(3.0, 0.5, 2.75, both)},
      {"sm90.mma.e4m3.separate", added(3.0, 0.5, 2.75, apart)},
      {"exact", rounded(kExactly) + 0x1p-149},
      {"gfx908.mfma.f16", rounded(kExactly) + 0x1p-149},
      {"fp32", kExactly + 2.0 * kReached * 0x1p-24},
      {"gfx942.mfma.f32", kExactly + 2.0 * kReached * 0x1p-24},
      {"sequential14.rne", kExactly + 2.0 * kReached * 0x1p-13 + 0x1p-149},
      {"seed.listing", products + (kExactly - 0.5) + 2.0 * reached * 0x1p-14 + 0x1p-149},
      {"gfx90a.mfma.f16", rounded(flushed) + 9.0 * 0x1p-126},
      {"gfx942.mfma.f16", two_stages},
      {"gfx942.mfma.fp8", two_stages}};
  for (const auto& [name, error] : expected) {
    const BoundedSum got = bound_of(name, kTerms);
    INFO(name << ": expected " << error << ", got " << got.error);
    CHECK(got.value == kSum);
    CHECK(off(got.error, error) < 1e-14);
    CHECK_FALSE(got.overflows);
  }
}

TEST_CASE("bounds: numbers far below 1 cost each unit the least that it knows", "[accumulate]") {
  // Products of 2^-140 and a sum of nothing: relative errors vanish beside these.
  const std::vector<BoundedTerm> tiny{{0x1p-140, -140, false}};
  const auto error_of = [&](const char* name) { return bound_of(name, tiny, {}).error; };
  CHECK(off(error_of("sm90.wgmma.e4m3.f16"), 0x1p-24) < 1e-9);
  CHECK(off(error_of("sm90.mma.f16.f16"), 0x1p-46 + 0x1p-24) < 1e-6);
  CHECK(off(error_of("sm90.mma.bf16"), 0x1p-158 + 0x1p-163 + 0x1p-149) < 1e-4);
  CHECK(off(error_of("gfx90a.mfma.f16"), 9.0 * 0x1p-126) < 1e-6);
  CHECK(off(error_of("gfx942.mfma.f16"), 5.0 * 0x1p-150 + 0x1p-149) < 1e-4);
  // A sum that FP16 may hold as a subnormal number is aligned at its least exponent, a sum of zero
  // where the products are.
  const BoundedSum c{0x1p-20, 0.0};
  const double aligned = after_step(0.0, 0x1p-20, 1, -14, 13, 10, 0x1p-24);
  CHECK(off(bound_of("sm90.wgmma.e4m3.f16", {}, c).error, aligned) < 1e-12);
}

TEST_CASE("bounds: terms of zero added to nothing cost nothing", "[accumulate]") {
  const std::vector<BoundedTerm> zeros(5, BoundedTerm{0.0, 3, false});
  for (const char* name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e4m3.f16", "sm100.tcgen05.mxf4nvf4", "exact", "fp32",
        "gfx908.mfma.f16", "gfx942.mfma.f32", "sequential14.rne", "seed.listing"}) {
    const BoundedSum got = bound_of(name, zeros, {});
    INFO(name);
    CHECK(got.value == 0.0);
    CHECK(got.error == 0.0);
    CHECK_FALSE(got.overflows);
  }
}

TEST_CASE("bounds: steps of a chain are those of the model's terms", "[accumulate]") {
  // Five terms of 1: sums of 4 and of 1, of 2, 2 and 1, and of 5 at once.
  const std::vector<BoundedTerm> ones(5, BoundedTerm{1.0, 0, false});
  const auto steps = [&](const std::vector<int>& lengths) {
    double sum = 0.0;
    double error = 0.0;
    for (const int length : lengths) {
      error += length * 0x1p-52 * (sum + length);
      sum += length;
      error += (sum + error) * 0x1p-24 + 0x1p-149;
    }
    return error;
  };
  CHECK(off(bound_of("gfx908.mfma.f16", ones, {}).error, steps({4, 1})) < 1e-12);
  CHECK(off(bound_of("gfx908.mfma.bf16", ones, {}).error, steps({2, 2, 1})) < 1e-12);
  CHECK(off(bound_of("exact", ones, {}).error, steps({5})) < 1e-12);
}

TEST_CASE("bounds: what units cannot hold on the way overflows, though the sum would fit",
          "[accumulate]") {
  const BoundedTerm large{0x1p128, 128, false};
  const BoundedTerm minus{-0x1p128, 128, false};
  const BoundedTerm half{0x1p126, 126, false};
  const BoundedTerm minus_half{-0x1p126, 126, false};
  for (const char* name :
       {"fp32", "gfx942.mfma.f32", "gfx90a.mfma.f16", "gfx942.mfma.f16", "gfx942.mfma.fp8"}) {
    INFO(name);
    // A product that is too large beside a sum that brings it back.
    CHECK(bound_of(name, {large}, {-0x1p127, 0.0}).overflows);
    CHECK(bound_of(name, {minus}, {0x1p127, 0.0}).overflows);
    CHECK_FALSE(bound_of(name, {half}, {-0x1p126, 0.0}).overflows);
    CHECK_FALSE(bound_of(name, {minus_half}, {0x1p126, 0.0}).overflows);
  }
  for (const char* name : {"exact", "sequential14.rne", "gfx908.mfma.bf16"}) {
    INFO(name);
    CHECK_FALSE(bound_of(name, {large, minus}, {1.0, 0.0}).overflows);
    CHECK(bound_of(name, {large}, {1.0, 0.0}).overflows);
  }
  // Magnitudes of CDNA3's products reach half of what CDNA2's may.
  CHECK_FALSE(bound_of("gfx90a.mfma.f16", {half, minus_half, half}, {}).overflows);
  CHECK(bound_of("gfx942.mfma.f16", {half, minus_half}, {}).overflows);
  CHECK_FALSE(bound_of("gfx942.mfma.f16", {half}, {}).overflows);
}
