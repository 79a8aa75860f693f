// The steps of an error bound, each with both sides of its limits.

#include "fp8lab/accumulate/bound.hpp"

#include <cmath>
#include <limits>
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
