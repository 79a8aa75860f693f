// Outputs of casts.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

TEST_CASE("verify: a cast with one value rounded twice", "[verify]") {
  std::vector<float> x(1000);
  const RandomStream stream(1, "verify_cast");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  x[500] = 1.0625001F;
  std::vector<std::byte> codes = cast_output(x, default_output(FormatId::e4m3fn));
  CHECK(codes[500] == std::byte{0x39});
  const Operand input{"x", view_of(ElementType::f32, {10, 100}, std::span<const float>(x)),
                      nullptr};
  const auto report = [&] {
    return verify_cast({}, input, nullptr,
                       {"got", {ElementType::e4m3fn, {10, 100}, codes}, nullptr});
  };
  CHECK(report().verdict == Verdict::pass);
  codes[500] = std::byte{0x38};
  const VerifyReport wrong = report();
  CHECK(wrong.verdict == Verdict::mismatch);
  CHECK(wrong.elements[0].row == 5);
  CHECK(wrong.elements[0].column == 0);
  REQUIRE(wrong.diagnosis.has_value());
  // Double rounding explains it, but would change right ones too: that is no cause.
  CHECK(wrong.diagnosis->mismatches == 1);
  CHECK(wrong.diagnosis->causes.empty());
  // Where nothing contradicts it, it is one: rounded to FP16 first, or truncated.
  std::vector<float> few{x.begin() + 500, x.begin() + 504};
  for (std::size_t i = 1; i < few.size(); ++i) few[i] = static_cast<float>(i);
  std::vector<std::byte> stored = cast_output(few, default_output(FormatId::e4m3fn));
  stored[0] = std::byte{0x38};
  const VerifyReport one =
      verify_cast({}, {"x", view_of(ElementType::f32, {4}, std::span<const float>(few)), nullptr},
                  nullptr, {"got", {ElementType::e4m3fn, {4}, stored}, nullptr});
  REQUIRE(one.diagnosis.has_value());
  const auto named = [&](std::string_view name) {
    return std::ranges::any_of(one.diagnosis->causes, [&](const Cause& cause) {
      return cause.name == name && cause.explained == 1;
    });
  };
  CHECK(named("double_rounding_f16"));
  CHECK(named("truncated_f16_first"));
}

TEST_CASE("verify: a division by the inverse of a scale is named", "[verify]") {
  std::vector<float> x(4000);
  const RandomStream stream(2, "divided");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  // Kernels keep the inverse; the scale that is given here is 1 / inverse.
  std::vector<float> scales;
  std::vector<float> divided;
  for (std::size_t row = 0; row < 10; ++row) {
    const float inverse = 0.013F * static_cast<float>(row + 1);
    scales.push_back(1.0F / inverse);
    for (std::size_t i = 0; i < 400; ++i) divided.push_back(x[row * 400 + i] / inverse);
  }
  // Values at which the two roundings differ: just beside the middle of two codes.
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t i = 0; i < 400; ++i) {
      const std::size_t at = row * 400 + i;
      const float inverse = 0.013F * static_cast<float>(row + 1);
      x[at] = 1.0625F * inverse * (i % 2 == 0 ? 1.0F : 2.0F);
      for (int step = 0; step < static_cast<int>(i % 4); ++step)
        x[at] = std::nextafter(x[at], 1e9F);
      divided[at] = x[at] / inverse;
    }
  const std::vector<std::byte> codes = cast_output(divided, default_output(FormatId::e4m3fn));
  const VerifyReport report = verify_cast(
      {}, {"x", view_of(ElementType::f32, {10, 400}, std::span<const float>(x)), nullptr},
      std::make_unique<Operand>(
          Operand{"s", view_of(ElementType::f32, {10, 1}, std::span<const float>(scales)), nullptr})
          .get(),
      {"got", {ElementType::e4m3fn, {10, 400}, codes}, nullptr});
  INFO(describe(report));
  REQUIRE(report.diagnosis.has_value());
  REQUIRE(!report.diagnosis->causes.empty());
  CHECK(report.diagnosis->causes.front().name == "divided_by_the_inverse");
}

TEST_CASE("verify: a cast under scales by tile", "[verify]") {
  const std::vector<float> x{1.0F, 1.3F, 2.0F, 5.7F, -1.0F, 0.3F, 7.0F, 1.1F};  // [2, 4]
  const std::vector<float> scales{2.0F, 0.5F, 4.0F, 1.0F};                      // [2, 2]
  std::vector<float> scaled;
  for (std::size_t i = 0; i < 8; ++i) scaled.push_back(x[i] * scales[i / 4 * 2 + i % 4 / 2]);
  const std::vector<std::byte> codes = cast_output(scaled, default_output(FormatId::e4m3fn));
  const Operand input{"x", view_of(ElementType::f32, {2, 4}, std::span<const float>(x)), nullptr};
  const Operand scale{"s", view_of(ElementType::f32, {2, 2}, std::span<const float>(scales)),
                      nullptr};
  const Operand got{"got", {ElementType::e4m3fn, {2, 4}, codes}, nullptr};
  const VerifyOptions tiles{.scale_tiles = ScaleTiles{1, 2}};
  CHECK(verify_cast({}, input, &scale, got, tiles).comparison.bitwise());
  CHECK_THROWS_WITH(verify_cast({}, input, &scale, got), contains("other tiles must be named"));
  const std::vector<std::uint8_t> e8m0{127};
  const Operand raw{"s", view_of(ElementType::u8, {1}, std::span<const std::uint8_t>(e8m0)),
                    nullptr};
  CHECK_THROWS_WITH(verify_cast({}, input, &raw, got), contains("`scale_format=e8m0fnu`"));
  CHECK(verify_cast({}, input, nullptr, got).comparison.bit_mismatches == 6);
  const Operand odd{"s", view_of(ElementType::f32, {3}, std::span<const float>(scales).first(3)),
                    nullptr};
  CHECK_THROWS_WITH(verify_cast({}, input, &odd, got), contains("expected one value, [2]"));
}

TEST_CASE("verify: mistakes in the scale of a cast are named, of one value and of tiles",
          "[verify]") {
  std::vector<float> x(6 * 32);
  const RandomStream stream(2, "scales of casts");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  const std::vector<float> scales{0.3F, 5.0F, 0.7F, 3.0F, 1.7F, 0.45F};
  for (const bool tiles : {false, true}) {
    const auto scale_of = [&](std::size_t i) { return tiles ? scales[i / 32] : scales[0]; };
    const auto cause = [&](const auto& wrong) {
      std::vector<float> values;
      for (std::size_t i = 0; i < x.size(); ++i) values.push_back(wrong(x[i], scale_of(i)));
      const std::vector<std::byte> codes = cast_output(values, default_output(FormatId::e4m3fn));
      const auto count = static_cast<std::int64_t>(tiles ? 6 : 1);
      const Operand scale{
          "s",
          view_of(ElementType::f32,
                  tiles ? std::vector<std::int64_t>{count, 1} : std::vector<std::int64_t>{count},
                  std::span(scales).first(static_cast<std::size_t>(count))),
          nullptr};
      const VerifyReport report = verify_cast(
          {}, {"x", view_of(ElementType::f32, {6, 32}, std::span<const float>(x)), nullptr}, &scale,
          {"got", {ElementType::e4m3fn, {6, 32}, codes}, nullptr}, {.threads = 1});
      if (!report.diagnosis || report.diagnosis->causes.empty()) return std::string("none");
      const Cause& best = report.diagnosis->causes.front();
      return best.contradicted == 0 ? best.name + ": " + best.text : "contradicted";
    };
    INFO("tiles " << tiles);
    CHECK(cause([](float v, float s) { return v * s; }) == "none");
    CHECK(cause([](float v, float) { return v; }) == "missing_scale: the scale not applied");
    CHECK(cause([](float v, float s) { return v * s * s; }) ==
          "doubled_scale: the scale applied twice");
    CHECK(cause([](float v, float s) { return v / s; }) ==
          "inverted_scale: divided by the scale instead of multiplied");
  }
}
