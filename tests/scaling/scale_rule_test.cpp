#include "fp8lab/scaling/scale_rule.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

struct Case {
  float amax;
  float scale;
  float inverse_scale;
};

void check(const ScaleOptions& options, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const TileScale got = tile_scale(options, c.amax);
    INFO(fmt::format("{} amax {:a}: expected {:a} / {:a}, got {:a} / {:a}", to_string(options.rule),
                     c.amax, c.scale, c.inverse_scale, got.scale, got.inverse_scale));
    CHECK(same(got.scale, c.scale));
    CHECK(same(got.inverse_scale, c.inverse_scale));
  }
}

}  // namespace

TEST_CASE("scale rules: TransformerEngine's edge cases", "[scaling]") {
  check({.rule = ScaleRule::te}, {{448.0F, 1.0F, 1.0F},
                                  {1.0F, 448.0F, 1.0F / 448.0F},
                                  {0.0F, 1.0F, 1.0F},
                                  {kInf, 1.0F, 1.0F},
                                  {kNan, 1.0F, 1.0F},
                                  {0x1p-149F, kFloatMax, 1.0F / kFloatMax},
                                  {kFloatMax, 448.0F / kFloatMax, 1.0F / (448.0F / kFloatMax)}});
  check({.rule = ScaleRule::te, .power_of_two = true}, {{1.0F, 256.0F, 0x1p-8F},
                                                        {448.0F, 1.0F, 1.0F},
                                                        {449.0F, 0.5F, 2.0F},
                                                        {0x1p-149F, 0x1p127F, 0x1p-127F}});
  check({.rule = ScaleRule::te, .format = FormatId::e5m2}, {{57344.0F, 1.0F, 1.0F}});
  check({.rule = ScaleRule::te, .amax_floor = 1.0F},
        {{0.0F, 448.0F, 1.0F / 448.0F}, {2.0F, 224.0F, 1.0F / 224.0F}});
}

TEST_CASE("scale rules: torchao's edge cases", "[scaling]") {
  const auto smallest = static_cast<float>(448.0 / 1e-12);
  check({.rule = ScaleRule::torchao},
        {{0.0F, smallest, 1.0F / smallest},
         {1e-20F, smallest, 1.0F / smallest},
         {kInf, 0.0F, kInf},
         {kNan, kNan, kNan},
         {3.0F, static_cast<float>(448.0 / 3.0), 1.0F / static_cast<float>(448.0 / 3.0)}});
  check({.rule = ScaleRule::torchao, .power_of_two = true},
        {{3.0F, 128.0F, 0x1p-7F}, {kInf, 0.0F, kInf}, {kNan, kNan, kNan}});
  // Just below 2^10 the binary32 log2 is 10 exactly, so that the scale is rounded up.
  const float below = std::nextafter(1024.0F, 0.0F);
  const float amax = 448.0F / below;
  REQUIRE(static_cast<float>(448.0 / static_cast<double>(amax)) == below);
  check({.rule = ScaleRule::torchao, .power_of_two = true}, {{amax, 1024.0F, 0x1p-10F}});
}

TEST_CASE("scale rules: DeepSeek's and DeepGEMM's edge cases", "[scaling]") {
  check({.rule = ScaleRule::deepseek},
        {{448.0F, 1.0F, 1.0F}, {0.0F, kInf, 0.0F}, {kInf, 0.0F, kInf}, {kNan, kNan, kNan}});
  check({.rule = ScaleRule::deepseek, .amax_floor = 1e-4F},
        {{448.0F, 1.0F, 1.0F},
         {0.0F, 1.0F / (1e-4F / 448.0F), 1e-4F / 448.0F},
         {1e-3F, 1.0F / (1e-3F / 448.0F), 1e-3F / 448.0F},
         {kNan, kNan, kNan}});
  // The first release multiplies by M / amax, as PyTorch divides a number by a tensor.
  check({.rule = ScaleRule::deepgemm_first}, {{448.0F, 1.0F / 448.0F * 448.0F, 1.0F},
                                              {3.1F, 1.0F / 3.1F * 448.0F, 3.1F / 448.0F},
                                              {0.0F, 1.0F / 1e-4F * 448.0F, 1e-4F / 448.0F}});
  const float least = 1e-4F / 448.0F;
  check({.rule = ScaleRule::deepgemm},
        {{448.0F, 1.0F, 1.0F}, {0.0F, 1.0F / least, least}, {1e-5F, 1.0F / least, least}});
  check({.rule = ScaleRule::deepgemm, .power_of_two = true},
        {{448.0F, 1.0F, 1.0F}, {449.0F, 0.5F, 2.0F}, {0.0F, 0x1p22F, 0x1p-22F}});
}

TEST_CASE("scale rules: MS-AMP keeps, inverts and overflows as shipped", "[scaling]") {
  check({.rule = ScaleRule::ms_amp, .previous_scale = 8.0F}, {{448.0F, 1.0F, 1.0F},
                                                              {1.0F, 256.0F, 0x1p-8F},
                                                              {1000.0F, 0.25F, 4.0F},
                                                              {0.0F, 8.0F, 0.125F},
                                                              {kNan, 8.0F, 0.125F},
                                                              {kInf, 0.125F, 8.0F},
                                                              {0x1p-149F, kInf, 0.0F}});
}

TEST_CASE("scale rules: the MX exponents of each rule", "[scaling]") {
  struct Row {
    float amax;
    int floor, ceil, even, rceil, te;  // E8M0 codes
  };
  // amax / 448 = 1 at 448; emax of E4M3 is 8.
  const std::vector<Row> rows{
      {256.0F, 127, 127, 127, 127, 127},
      {257.0F, 127, 128, 127, 127, 127},
      {448.0F, 127, 128, 127, 127, 127},
      {449.0F, 127, 128, 127, 128, 128},
      {495.9F, 127, 128, 127, 128, 128},
      {496.0F, 127, 128, 128, 128, 128},  // rounds to 2^9 at three mantissa bits
      {0x1p-126F, 0, 0, 0, 0, 0},
      {0.0F, 0, 0, 0, 0, 0},
      {kFloatMax, 246, 247, 255, 247, 247},
      {kInf, 255, 255, 255, 255, 254},
      {kNan, 255, 255, 255, 255, 255},
  };
  for (const Row& row : rows) {
    const auto code = [&](ScaleRule rule) {
      return static_cast<int>(tile_scale({.rule = rule}, row.amax).e8m0);
    };
    INFO(fmt::format("amax {:a}", row.amax));
    CHECK(code(ScaleRule::mx_floor) == row.floor);
    CHECK(code(ScaleRule::mx_ceil) == row.ceil);
    CHECK(code(ScaleRule::mx_even) == row.even);
    CHECK(code(ScaleRule::mx_rceil) == row.rceil);
    CHECK(code(ScaleRule::te_mx) == row.te);
  }
  CHECK(tile_scale({.rule = ScaleRule::te_mx}, 0.0F).scale == 1.0F);
  CHECK(tile_scale({.rule = ScaleRule::te_mx}, kInf).scale == 0.0F);
  CHECK(tile_scale({.rule = ScaleRule::mx_rceil}, 0.0F).scale == 0x1p127F);
  CHECK(std::isnan(tile_scale({.rule = ScaleRule::mx_floor}, kInf).scale));
  CHECK_THROWS_WITH(tile_scale({.rule = ScaleRule::mx_floor, .format = FormatId::e4m3fnuz}, 1.0F),
                    contains("e4m3fn, e5m2"));
}

TEST_CASE("scale rules: torchao's MX codes and multipliers at their ends", "[scaling]") {
  struct Row {
    float amax;
    int floor, ceil, even, rceil;  // E8M0 codes
  };
  const std::vector<Row> rows{
      {448.0F, 127, 128, 127, 127},     {257.0F, 127, 128, 127, 127},
      {496.0F, 127, 128, 128, 128},     {0.0F, 0, 0, 0, 0},
      {0x1p-119F, 0, 0, 0, 0},          {kFloatMax, 246, 247, 247, 247},
      {0x1.fp127F, 246, 247, 247, 247}, {kInf, 247, 247, 247, 254},
      {kNan, 255, 255, 255, 255},
  };
  for (const Row& row : rows) {
    const auto code = [&](ScaleRule rule) {
      return static_cast<int>(tile_scale({.rule = rule}, row.amax).e8m0);
    };
    INFO(fmt::format("amax {:a}", row.amax));
    CHECK(code(ScaleRule::torchao_mx_floor) == row.floor);
    CHECK(code(ScaleRule::torchao_mx_ceil) == row.ceil);
    CHECK(code(ScaleRule::torchao_mx_even) == row.even);
    CHECK(code(ScaleRule::torchao_mx_rceil) == row.rceil);
  }
  for (const ScaleRule rule :
       {ScaleRule::torchao_mx_floor, ScaleRule::torchao_mx_ceil, ScaleRule::torchao_mx_even}) {
    CHECK(tile_scale({.rule = rule}, 0.0F).scale == 0x1p126F);
    CHECK(tile_scale({.rule = rule}, 0.0F).inverse_scale == 0x1p-127F);
    CHECK(tile_scale({.rule = rule}, kNan).scale == 0.0F);
    CHECK(std::isnan(tile_scale({.rule = rule}, kNan).inverse_scale));
  }
  CHECK(tile_scale({.rule = ScaleRule::torchao_mx_rceil}, 0.0F).scale == 1.0F);
  CHECK(tile_scale({.rule = ScaleRule::torchao_mx_rceil}, kInf).scale == 0x1p-127F);
  CHECK(std::isnan(tile_scale({.rule = ScaleRule::torchao_mx_rceil}, kNan).scale));
  // Just above 2^10 the binary32 log2 is 10: the exponent is not rounded up.
  const float above = std::nextafter(448.0F * 1024.0F, kInf);
  CHECK(tile_scale({.rule = ScaleRule::torchao_mx_rceil}, above).e8m0 == 137);
  CHECK(tile_scale({.rule = ScaleRule::mx_rceil}, above).e8m0 == 138);
}

TEST_CASE("scale rules: systems that serve models", "[scaling]") {
  check({.rule = ScaleRule::quotient},
        {{448.0F, 1.0F, 1.0F}, {0.0F, kInf, 0.0F}, {kInf, 0.0F, kInf}, {kNan, kNan, kNan}});
  check({.rule = ScaleRule::quotient_eps}, {{448.0F, 1.0F, 1.0F}, {0.0F, 0x1p23F, 0x1p-23F}});
  check({.rule = ScaleRule::quotient_eps_bf16}, {{448.0F, 1.0F, 1.0F}, {0.0F, 128.0F, 0x1p-7F}});
  // 3 / 448 = 0x1.b6db6dp-8 has eight bits in BF16.
  check({.rule = ScaleRule::quotient_bf16}, {{3.0F, 1.0F / 0x1.b6p-8F, 0x1.b6p-8F}});
  check({.rule = ScaleRule::scale_bf16}, {{3.0F, 1.0F / 0x1.b6p-8F, 0x1.b6p-8F}});
  check({.rule = ScaleRule::modelopt},
        {{448.0F, 1.0F / 448.0F * 448.0F, 1.0F},
         {0.0F, 448.0F, 1.0F / 448.0F},
         {0x1p-24F, 448.0F, 1.0F / 448.0F},
         {0x1.8p-24F, 1.0F / 0x1.8p-24F * 448.0F, 1.0F / (1.0F / 0x1.8p-24F * 448.0F)}});
  check({.rule = ScaleRule::vllm_tensor}, {{448.0F, 1.0F, 1.0F}, {0.0F, kInf, 0.0F}});
  const float floor = 1.0F / (448.0F * 512.0F);
  check({.rule = ScaleRule::vllm_token},
        {{448.0F, 1.0F, 1.0F}, {0.0F, 1.0F / floor, floor}, {1e-4F, 1.0F / floor, floor}});
  const float least = 1e-10F / 448.0F;
  check({.rule = ScaleRule::vllm_group}, {{448.0F, 1.0F, 1.0F}, {0.0F, 1.0F / least, least}});
  check({.rule = ScaleRule::vllm_group, .power_of_two = true},
        {{448.0F, 1.0F, 1.0F}, {449.0F, 0.5F, 2.0F}, {0.0F, 0x1p33F, 0x1p-33F}});
}

TEST_CASE("scale rules: DeepSeek-V3.2's, Flax's and qwix's edge cases", "[scaling]") {
  // 448 * fl(1 / 448) is 1, and its next number is not.
  const ScaleOptions v32{.rule = ScaleRule::deepseek_ue8m0, .amax_floor = 1e-4F};
  check(v32, {{448.0F, 1.0F, 1.0F},
              {std::nextafter(448.0F, kInf), 0.5F, 2.0F},
              {0.0F, 0x1p22F, 0x1p-22F},
              {kInf, 0.0F, kInf}});
  check({.rule = ScaleRule::flax}, {{448.0F, 1.0F, 1.0F},
                                    {3.0F, 448.0F / 3.0F, 1.0F / (448.0F / 3.0F)},
                                    {0x1p-125F, kInf, 0.0F},
                                    {0.0F, 1.0F, 1.0F},
                                    {kInf, 1.0F, 1.0F},
                                    {kNan, 1.0F, 1.0F}});
  check({.rule = ScaleRule::flax_bf16},
        {{3.0F, 448.0F / 3.0F, rounded_to_bf16(1.0F / (448.0F / 3.0F))}});
  // The smallest scale is 2^-63: 448 * 2^-63 is the amax that has it.
  check({.rule = ScaleRule::qwix}, {{0x1.cp-55F, 0x1p63F, 0x1p-63F},
                                    {0x1.bp-55F, 1.0F, 1.0F},
                                    {3.0F, 1.0F / (3.0F * (1.0F / 448.0F)), 3.0F * (1.0F / 448.0F)},
                                    {0.0F, 1.0F, 1.0F},
                                    {kInf, 0.0F, kInf}});
  const float inverse = rounded_to_bf16(3.0F / 448.0F);
  check({.rule = ScaleRule::qwix_bf16}, {{3.0F, 1.0F / inverse, inverse}});
}

TEST_CASE("scale rules: those of CUDA's kernels leave NaN out of an amax", "[scaling]") {
  const std::set<std::string_view> ignoring{"unit",
                                            "te",
                                            "te_mx",
                                            "deepseek",
                                            "deepseek_ue8m0",
                                            "nvfp4",
                                            "te_nvfp4",
                                            "vllm_tensor",
                                            "vllm_token",
                                            "vllm_group",
                                            "vllm_mxfp4",
                                            "serving_nvfp4",
                                            "te_4over6_mae",
                                            "te_4over6_mse",
                                            "te_4over6_mae_256",
                                            "te_4over6_mse_256"};
  std::size_t found = 0;
  for (const ScaleRuleTraits& one : kScaleRules) {
    const ScaleRule rule = one.rule;
    INFO(to_string(rule));
    CHECK(find_scale_rule(to_string(rule)) == rule);
    CHECK(amax_ignores_nan(rule) == ignoring.contains(to_string(rule)));
    found += ignoring.contains(to_string(rule)) ? 1 : 0;
  }
  CHECK(found == ignoring.size());
}

TEST_CASE("scale rules: many tiles have the scales that each has alone", "[scaling]") {
  const std::vector<float> amaxes{448.0F, 0.0F, 3.0F, kInf, kNan};
  const TileScaler scaler({.rule = ScaleRule::torchao, .amax_floor = 7.0F});
  std::vector<TileScale> scales(5);
  scaler(amaxes, scales);
  CHECK(scales[0].scale == 1.0F);
  CHECK(scales[1].scale == 64.0F);
  CHECK(scales[2].scale == 64.0F);
  CHECK(scales[3].scale == 0.0F);
  CHECK(std::isnan(scales[4].scale));
  scales.pop_back();
  CHECK_THROWS_WITH(scaler(amaxes, scales), contains("scales: expected 5, as amaxes, got 4"));
  CHECK_THROWS_WITH(tile_scale({.amax_floor = kInf}, 3.0F), contains("0 or more"));
  CHECK_THROWS_WITH(tile_scale({.amax_floor = kNan}, 3.0F), contains("amax_floor"));
  check({.rule = ScaleRule::te, .max_magnitude = 240.0}, {{60.0F, 4.0F, 0.25F}});
  check({.rule = ScaleRule::fp32_scale_bf16},
        {{448.0F, 1.0F, 1.0F}, {3.0F, 1.0F / (3.0F / 448.0F), 3.0F / 448.0F}, {0.0F, kInf, 0.0F}});
}

TEST_CASE("scale rules: elements in the type of their system", "[scaling]") {
  const TileScale s{1.0F / 3.0F, 3.0F, 0};
  const float x = 0x1.01p0F;  // a tie in BF16, to even: 1
  CHECK(scaled_element(ScaleRule::torchao, x, s) == x * s.scale);
  CHECK(scaled_element(ScaleRule::quotient, x, s) == x / 3.0F);
  CHECK(scaled_element(ScaleRule::scale_bf16, x, s) == 1.0F / 3.0F);
  CHECK(scaled_element(ScaleRule::quotient_bf16, x, s) == 0x1.56p-2F);
  CHECK(std::signbit(scaled_element(ScaleRule::quotient, -0.0F, s)));
  CHECK(!std::signbit(scaled_element(ScaleRule::quotient_eps, -0.0F, s)));
  CHECK(!std::signbit(scaled_element(ScaleRule::quotient, -kNan, s)));
  CHECK(rounded_to_bf16(kFloatMax) == kInf);
  CHECK(std::isnan(rounded_to_bf16(kNan)));
}

TEST_CASE("scale rules: an option that a rule does not use is refused", "[scaling]") {
  for (int i = 0; i <= static_cast<int>(ScaleRule::deepgemm_first); ++i) {
    const auto rule = static_cast<ScaleRule>(i);
    INFO(to_string(rule));
    CHECK(find_scale_rule(to_string(rule)) == rule);
    const ScaleOptions plain{.rule = rule};
    const ScaleOptions power{.rule = rule, .power_of_two = true};
    const ScaleOptions floored{.rule = rule, .amax_floor = 7.0F};
    if (has_power_of_two(rule))
      CHECK(tile_scale(power, 3.0F).inverse_scale != tile_scale(plain, 3.0F).inverse_scale);
    else
      CHECK_THROWS_WITH(tile_scale(power, 3.0F), contains("power_of_two"));
    if (has_amax_floor(rule))
      CHECK(tile_scale(floored, 3.0F).inverse_scale == tile_scale(plain, 7.0F).inverse_scale);
    else
      CHECK_THROWS_WITH(tile_scale(floored, 3.0F), contains("amax_floor"));
  }
  CHECK_THROWS_WITH(tile_scale({.amax_floor = -1.0F}, 3.0F), contains("0 or more"));
}

TEST_CASE("scale rules: a power-of-two scale never lets the amax overflow", "[scaling]") {
  const RandomStream random(7, "scale_rules");
  const std::vector<ScaleOptions> rules{{.rule = ScaleRule::te, .power_of_two = true},
                                        {.rule = ScaleRule::deepgemm, .power_of_two = true},
                                        {.rule = ScaleRule::mx_rceil},
                                        {.rule = ScaleRule::mx_ceil},
                                        {.rule = ScaleRule::te_mx}};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const float amax = std::bit_cast<float>(0x30000000U + random.bits32(i) % 0x20000000U);
    for (const ScaleOptions& options : rules) {
      const TileScale s = tile_scale(options, amax);
      INFO(fmt::format("{} amax {:a} scale {:a}", to_string(options.rule), amax, s.scale));
      REQUIRE(s.scale * s.inverse_scale == 1.0F);
      REQUIRE(static_cast<double>(amax) * static_cast<double>(s.scale) <= 448.0);
    }
  }
}

TEST_CASE("amax: NaN is ignored or kept, -0 is +0", "[scaling]") {
  const std::vector<float> x{-0.0F, 1.0F, kNan, -3.0F};
  CHECK(amax(x, true) == 3.0F);
  CHECK(std::isnan(amax(x, false)));
  CHECK(same(amax(std::vector<float>{-0.0F}, true), 0.0F));
  CHECK(same(amax({}, false), 0.0F));
  CHECK(same(amax(std::vector<float>{kNan, -kInf}, true), kInf));
  CHECK(same(amax(std::vector<float>{kNan}, true), 0.0F));
}
