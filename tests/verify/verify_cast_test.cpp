// Outputs of casts.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/scaling/presets.hpp"
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

namespace {

constexpr std::int64_t kCastRows = 64;
constexpr std::int64_t kCastColumns = 512;
constexpr std::int64_t kTile = 128;

/// A matrix whose rows differ in size, as activations do, with the scale of each tile of 1 x 128.
struct TiledInput {
  std::vector<float> x;
  std::vector<float> scales;

  TiledInput() {
    const RandomStream stream(11, "tiled input");
    for (std::int64_t i = 0; i < kCastRows * kCastColumns; ++i) {
      const auto row = static_cast<std::uint64_t>(i / kCastColumns);
      x.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i)) *
                                     std::exp2(stream.normal(1000000 + row))));
    }
    for (std::int64_t tile = 0; tile < kCastRows * kCastColumns / kTile; ++tile) {
      float amax = 0.0F;
      for (std::int64_t i = 0; i < kTile; ++i)
        amax = std::max(amax, std::abs(x[static_cast<std::size_t>(tile * kTile + i)]));
      scales.push_back(448.0F / amax);
    }
  }
  /// Codes of x times `scale(row, tile)`.
  template <typename Scale>
  [[nodiscard]] std::vector<std::byte> cast(const Scale& scale,
                                            const CastPolicy& policy = kNvidiaSatfinite) const {
    std::vector<float> scaled(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      scaled[i] = x[i] * scale(i / kCastColumns, i % kCastColumns / kTile);
    return cast_output(scaled, {FormatId::e4m3fn, policy});
  }
  [[nodiscard]] float at(std::size_t row, std::size_t tile) const { return scales[row * 4 + tile]; }
  [[nodiscard]] Operand input() const {
    return {"x", view_of(ElementType::f32, {kCastRows, kCastColumns}, std::span<const float>(x)),
            nullptr};
  }
  [[nodiscard]] VerifyReport check(const std::vector<std::byte>& codes) const {
    const Operand of_tiles{
        "scale", view_of(ElementType::f32, {kCastRows, 4}, std::span<const float>(scales)),
        nullptr};
    return verify_cast({}, input(), &of_tiles,
                       {"got", {ElementType::e4m3fn, {kCastRows, kCastColumns}, codes}, nullptr},
                       {.threads = 1, .judge_power = false});
  }
};

std::string cause_of_tiles(const VerifyReport& report) {
  if (!report.diagnosis || report.diagnosis->causes.empty()) return describe(report);
  return report.diagnosis->causes[0].name + ": " + report.diagnosis->causes[0].text;
}

}  // namespace

TEST_CASE("verify: scales and rounding of a cast's tiles are measured", "[verify]") {
  const TiledInput t;
  CHECK(t.check(t.cast([&](auto r, auto c) { return t.at(r, c); })).verdict == Verdict::pass);
  CHECK_THAT(
      cause_of_tiles(t.check(t.cast([&](auto r, auto c) { return t.at(r, (c + 1) % 4); }))),
      contains("scale_of_other_tile: the scale (measured): column i of tiles has that of column"));
  CHECK_THAT(
      cause_of_tiles(t.check(t.cast([&](auto r, auto c) { return t.at((r + 63) % 64, c); }))),
      contains("scale_of_other_row_of_tiles"));
  const VerifyReport one = t.check(
      t.cast([&](auto r, auto c) { return r == 5 && c == 2 ? 0.75F * t.at(r, c) : t.at(r, c); }));
  CHECK_THAT(cause_of_tiles(one), contains("scale_times: the scale (measured): 0.75 times"));
  REQUIRE(one.regions.size() == 1);
  CHECK((one.regions[0].row == 5 && one.regions[0].rows == 1));
  CHECK((one.regions[0].column >= 256 && one.regions[0].columns <= 128));
  // Truncated in the last tiles alone.
  std::vector<std::byte> codes = t.cast([&](auto r, auto c) { return t.at(r, c); });
  CastPolicy truncating = kNvidiaSatfinite;
  truncating.rounding = RoundingMode::toward_zero;
  const std::vector<std::byte> cut = t.cast([&](auto r, auto c) { return t.at(r, c); }, truncating);
  for (std::size_t i = 0; i < codes.size(); ++i)
    if (i % kCastColumns >= 384) codes[i] = cut[i];
  CHECK_THAT(cause_of_tiles(t.check(codes)),
             contains("rounding_of_tiles: right scales (measured); truncated (round toward zero)"));
  // Rows stored in another place.
  codes = t.cast([&](auto r, auto c) { return t.at(r, c); });
  std::copy(codes.begin() + 16 * kCastColumns, codes.begin() + 24 * kCastColumns,
            codes.begin() + 40 * kCastColumns);
  const VerifyReport stored = t.check(codes);
  REQUIRE(stored.regions.size() == 1);
  CHECK(stored.regions[0].content == RegionContent::elsewhere);
  CHECK(stored.regions[0].from_row == 16);
}

TEST_CASE("verify: a quantizer's codes and scales are held to its recipe", "[verify]") {
  const TiledInput t;
  const Recipe& recipe = find_preset("deepgemm").recipe(TensorRole::activation);
  QuantizedTensor q = Quantizer(recipe).quantize({t.x, kCastRows, kCastColumns});
  const std::vector<float> right = q.inverse_scales;
  const auto check = [&](const std::vector<float>& scales, std::span<const std::byte> codes) {
    const Operand of_tiles{
        "scale", view_of(ElementType::f32, {kCastRows, 4}, std::span<const float>(scales)),
        nullptr};
    return verify_quantizer(
        recipe, "deepgemm (activation)", t.input(), &of_tiles,
        {"got", {ElementType::e4m3fn, {kCastRows, kCastColumns}, codes}, nullptr}, {.threads = 1});
  };
  const std::span<const std::byte> codes{reinterpret_cast<const std::byte*>(q.codes.data()),
                                         q.codes.size()};
  const VerifyReport pass = check(right, codes);
  INFO(describe(pass));
  CHECK(pass.verdict == Verdict::pass);
  REQUIRE(pass.scales);
  CHECK((pass.scales->compared == 256 && pass.scales->wrong == 0));

  std::vector<float> scales = right;
  scales[14] *= 2.0F;
  const VerifyReport one = check(scales, codes);
  CHECK(one.verdict == Verdict::mismatch);
  CHECK(one.scales->wrong == 1);
  CHECK_THAT(summary(one), contains("1 of 256 scales differ: tile (3, 2)"));
  CHECK_THAT(summary(one), contains("they are 2 times the right ones"));
  CHECK_THAT(summary(one), contains("do not follow the stored scales"));

  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0F / right[i];
  CHECK_THAT(summary(check(scales, codes)), contains("the right ones inverted"));
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = right[i / 4 * 4 + (i + 1) % 4];
  CHECK_THAT(summary(check(scales, codes)), contains("number i in memory is that of number"));

  // Another system's recipe, in full.
  const Recipe& other = find_preset("deepgemm-ue8m0").recipe(TensorRole::activation);
  const QuantizedTensor theirs = Quantizer(other).quantize({t.x, kCastRows, kCastColumns});
  const VerifyReport named =
      check(theirs.inverse_scales,
            {reinterpret_cast<const std::byte*>(theirs.codes.data()), theirs.codes.size()});
  CHECK(named.verdict == Verdict::mismatch);
  CHECK_THAT(describe(named), contains("rounded up to powers of two"));
  CHECK_THAT(describe(named), contains("are right under the stored scales"));
  CHECK(std::ranges::any_of(named.scales->lines, [](const std::string& line) {
    return line.starts_with("codes and scales are those of ") &&
           line.find("deepgemm-ue8m0 (activation)") != std::string::npos;
  }));
}
