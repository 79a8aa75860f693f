// Which recipe and which operations gave a cast.

#include "fp8lab/scaling/cast_search.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

/// BF16 numbers, so that systems that compute in BF16 take them.
std::vector<float> cast_values(std::int64_t count) {
  const RandomStream random(7, "cast search");
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = rounded_to_bf16(static_cast<float>(random.normal(i)));
  return values;
}

std::vector<float> both_levels(const QuantizedTensor& q) {
  std::vector<float> scales = q.inverse_scales;
  for (std::size_t i = 0; i < q.ue4m3.size(); ++i)
    scales[i] = decode_table(FormatId::e4m3fn)[q.ue4m3[i]] * q.tensor_inverse_scale;
  return scales;
}

}  // namespace

TEST_CASE("the recipe of a cast is among those that explain it", "[scaling]") {
  const std::vector<float> values = cast_values(128 * 256);
  const FloatMatrix x{values, 128, 256};
  for (const char* name : {"deepseek-v3", "deepgemm-ue8m0", "vllm-per-token", "llm-compressor-bf16",
                           "mxfp4", "torchao-mxfp8-rceil", "modelopt-nvfp4"}) {
    INFO(name);
    const Recipe& recipe = find_preset(name).weight;
    const QuantizedTensor q = quantize(recipe, x);
    const std::vector<float> scales = both_levels(q);
    const CastSearch found = search_cast({x, q.format, q.codes, scales});
    CHECK(found.explained());
    CHECK(std::any_of(found.recipes.begin(), found.recipes.end(), [&](const RecipeMatch& match) {
      return match.recipe == name && match.exact();
    }));
    // One code less is no recipe's, and the text says how many differ.
    std::vector<std::uint8_t> codes(q.codes.begin(), q.codes.end());
    codes[5] ^= 1U;
    const CastSearch spoiled = search_cast({x, q.format, codes, scales});
    CHECK_FALSE(spoiled.explained());
    CHECK(spoiled.recipes.front().wrong_codes == 1);
    CHECK(describe(spoiled, 1).find(": 1 of 32768 codes and 0 of") != std::string::npos);
  }
}

TEST_CASE("operations on elements are found under scales of any rule", "[scaling]") {
  const std::vector<float> values = cast_values(16 * 64);
  const FloatMatrix x{values, 16, 64};
  std::vector<float> scales(16);
  for (std::size_t r = 0; r < 16; ++r) scales[r] = 0.011F + 0.0003F * static_cast<float>(r);
  const auto codes_of = [&](CastPolicy policy, bool divides) {
    std::vector<float> scaled(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float s = scales[i / 64];
      scaled[i] = divides ? values[i] / s : values[i] * (1.0F / s);
    }
    std::vector<std::uint8_t> codes(values.size());
    encode(scaled, codes, {.format = FormatId::e4m3fn, .policy = policy});
    return codes;
  };
  struct Case {
    CastPolicy policy;
    bool divides;
    const char* rounding;
  };
  for (const Case& c : {Case{{}, true, "nearest even"}, Case{{}, false, "nearest even"},
                        Case{{.rounding = RoundingMode::toward_zero}, true, "toward zero"},
                        Case{{.rounding = RoundingMode::upward}, false, "upward"}}) {
    const std::vector<std::uint8_t> codes = codes_of(c.policy, c.divides);
    const CastSearch found = search_cast({x, FormatId::e4m3fn, codes, scales});
    INFO(c.rounding << (c.divides ? " divided" : " multiplied"));
    CHECK_FALSE(found.explained());  // no rule gives these scales
    REQUIRE(found.elements.front().wrong_codes == 0);
    const bool names_it =
        std::any_of(found.elements.begin(), found.elements.end(), [&](const ElementMatch& match) {
          return match.wrong_codes == 0 && match.rounding == c.rounding &&
                 match.scaling == (c.divides ? "x / s" : "x * (1 / s)");
        });
    CHECK(names_it);
  }
}

TEST_CASE("codes and scales of other numbers than a matrix has are refused", "[scaling]") {
  const std::vector<float> values(32, 1.0F);
  const std::vector<std::uint8_t> codes(32, 0x38);
  const std::vector<float> scales(2, 1.0F);
  const FloatMatrix x{values, 4, 8};
  const std::span<const std::uint8_t> few(codes.data(), 31);
  CHECK_THROWS_WITH(search_cast({x, FormatId::e4m3fn, few, scales}),
                    "codes: expected as many as values, 32, got 31");
  CHECK_THROWS_WITH(search_cast({x, FormatId::e4m3fn, codes, scales}),
                    "scales: expected as many as a recipe has for [4, 8] in e4m3fn, got 2");
}
