// Special values, state and fields of recipes, and bad arguments.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "scaling/tensors.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Format, cast, rule and tile; then whatever is not the default.
std::string recipe_text(const Recipe& r) {
  const auto profile = std::ranges::find(kCastProfiles, r.policy, &CastProfile::policy);
  std::string text =
      fmt::format("{} {} {} {}x{}", format(r.format).name,
                  profile == kCastProfiles.end() ? std::string_view("another cast") : profile->name,
                  to_string(r.rule), r.row_block, r.k_block);
  if (r.source != ScaleSource::current) text += fmt::format(", {}", to_string(r.source));
  if (r.power_of_two) text += ", power of two";
  if (r.amax_floor != 0.0F) text += fmt::format(", floor {}", r.amax_floor);
  if (r.rows_multiple != 1 || r.k_multiple != 1)
    text += fmt::format(", of {}x{}", r.rows_multiple, r.k_multiple);
  if (r.window != 16) text += fmt::format(", window {}", r.window);
  const DelayedOptions& d = r.delayed;
  if (d.history != 1024 || d.margin != 0.0 || d.algorithm != AmaxAlgorithm::max ||
      d.zero_amax != ZeroAmax::keep_history)
    text += ", other delayed options";
  return text;
}

/// A preset's recipes; an empty weight or gradient is that of the activation.
struct PresetFields {
  std::string_view name;
  std::string_view evidence;
  std::string_view activation;
  std::string_view weight = "";
  std::string_view gradient = "";
};

constexpr std::string_view kCompared = "compared with the package";
constexpr std::string_view kRead = "by reading";
constexpr std::string_view kOwn = "defined here";

constexpr PresetFields kPresetFields[] = {
    {"te-current", kCompared, "e4m3fn nvidia_satfinite te 0x0", "", "e5m2 nvidia_satfinite te 0x0"},
    {"te-delayed", kRead, "e4m3fn nvidia_satfinite te 0x0, delayed", "",
     "e5m2 nvidia_satfinite te 0x0, delayed"},
    {"te-blockwise", kRead, "e4m3fn nvidia_satfinite te 1x128, power of two, of 128x128",
     "e4m3fn nvidia_satfinite te 128x128, power of two, of 128x128"},
    {"te-mxfp8", kRead, "e4m3fn nvidia_satfinite te_mx 1x32, of 32x32"},
    {"te-mxfp8-2d", kRead, "e4m3fn nvidia_satfinite te_mx 1x32, of 32x32",
     "e4m3fn nvidia_satfinite te_mx 32x32, of 32x32"},
    {"torchao-tensorwise", kCompared, "e4m3fn ocp_saturating torchao 0x0", "",
     "e5m2 ocp_saturating torchao 0x0"},
    {"torchao-rowwise", kCompared, "e4m3fn ocp_saturating torchao 1x0, power of two"},
    {"torchao-rowwise-hp-wgrad", kCompared, "e4m3fn ocp_saturating torchao 1x0, power of two"},
    {"torchao-blockwise", kCompared, "e4m3fn ocp_saturating torchao 1x128, of 1x128",
     "e4m3fn ocp_saturating torchao 128x128, of 128x128"},
    {"deepseek-v3", kRead, "e4m3fn ocp_nonsaturating deepseek 1x128, floor 0.0001, of 1x128",
     "e4m3fn ocp_nonsaturating deepseek 128x128, floor 0.0001"},
    {"deepseek-v3-first", kRead, "e4m3fn ocp_nonsaturating deepseek 1x128, of 1x128",
     "e4m3fn ocp_nonsaturating deepseek 128x128"},
    {"deepseek-v3.2", kRead, "e4m3fn ocp_saturating deepseek_ue8m0 1x128, floor 0.0001, of 1x128",
     "e4m3fn ocp_saturating deepseek_ue8m0 128x128, floor 0.0001"},
    {"deepgemm", kCompared, "e4m3fn ocp_saturating deepgemm 1x128",
     "e4m3fn ocp_saturating deepgemm 128x128"},
    {"deepgemm-ue8m0", kCompared, "e4m3fn ocp_saturating deepgemm 1x128, power of two",
     "e4m3fn ocp_saturating deepgemm 128x128, power of two"},
    {"deepgemm-first", kCompared, "e4m3fn ocp_saturating deepgemm_first 1x128",
     "e4m3fn ocp_saturating deepgemm_first 128x128"},
    {"ms-amp", kRead, "e4m3fn nvidia_satfinite ms_amp 0x0, ms_amp",
     "e4m3fn nvidia_satfinite ms_amp 0x0, ms_amp, window 1",
     "e5m2 nvidia_satfinite ms_amp 0x0, ms_amp"},
    {"naive", kOwn, "e4m3fn nvidia_satfinite unit 0x0"},
    {"ocp-mxfp8", kCompared, "e4m3fn ocp_saturating mx_floor 1x32, of 1x32"},
    {"mxfp8-floor", kCompared, "e4m3fn ocp_saturating mx_floor 1x32, of 1x32"},
    {"mxfp8-ceil", kOwn, "e4m3fn ocp_saturating mx_ceil 1x32, of 1x32"},
    {"mxfp8-even", kOwn, "e4m3fn ocp_saturating mx_even 1x32, of 1x32"},
    {"mxfp8-rceil", kRead, "e4m3fn ocp_saturating mx_rceil 1x32, of 1x32"},
    {"torchao-mxfp8-floor", kCompared, "e4m3fn ocp_saturating torchao_mx_floor 1x32, of 1x32"},
    {"torchao-mxfp8-ceil", kCompared, "e4m3fn ocp_saturating torchao_mx_ceil 1x32, of 1x32"},
    {"torchao-mxfp8-even", kCompared, "e4m3fn ocp_saturating torchao_mx_even 1x32, of 1x32"},
    {"torchao-mxfp8-rceil", kCompared, "e4m3fn ocp_saturating torchao_mx_rceil 1x32, of 1x32"},
    {"mxfp4", kCompared, "e2m1 ocp_saturating mx_floor 1x32, of 1x32"},
    {"mxfp6-e2m3", kCompared, "e2m3 ocp_saturating mx_floor 1x32, of 1x32"},
    {"mxfp6-e3m2", kCompared, "e3m2 ocp_saturating mx_floor 1x32, of 1x32"},
    {"nvfp4", kRead, "e2m1 nvidia_satfinite nvfp4 1x16, of 1x16"},
    {"te-nvfp4", kCompared, "e2m1 nvidia_satfinite te_nvfp4 1x16, of 16x16",
     "e2m1 nvidia_satfinite te_nvfp4 16x16, of 16x16"},
    {"te-nvfp4-4over6", kCompared, "e2m1 nvidia_satfinite te_4over6_mae_256 1x16, of 16x16",
     "e2m1 nvidia_satfinite te_4over6_mae_256 16x16, of 16x16",
     "e2m1 nvidia_satfinite te_nvfp4 1x16, of 16x16"},
    {"te-nvfp4-4over6-mse", kCompared, "e2m1 nvidia_satfinite te_4over6_mse_256 1x16, of 16x16",
     "e2m1 nvidia_satfinite te_4over6_mse_256 16x16, of 16x16",
     "e2m1 nvidia_satfinite te_nvfp4 1x16, of 16x16"},
    {"te-nvfp4-4over6-448", kCompared, "e2m1 nvidia_satfinite te_4over6_mae 1x16, of 16x16",
     "e2m1 nvidia_satfinite te_4over6_mae 16x16, of 16x16",
     "e2m1 nvidia_satfinite te_nvfp4 1x16, of 16x16"},
    {"te-nvfp4-4over6-mse-448", kCompared, "e2m1 nvidia_satfinite te_4over6_mse 1x16, of 16x16",
     "e2m1 nvidia_satfinite te_4over6_mse 16x16, of 16x16",
     "e2m1 nvidia_satfinite te_nvfp4 1x16, of 16x16"},
    {"deepgemm-fp4", kCompared, "e2m1 ocp_saturating deepgemm_fp4 1x32, of 1x2"},
    {"deepgemm-fp4-128", kCompared, "e2m1 ocp_saturating deepgemm_fp4 1x128, of 1x2"},
    {"vllm-mxfp4", kRead, "e2m1 nvidia_satfinite vllm_mxfp4 1x32, of 1x32"},
    {"serving-nvfp4", kRead, "e2m1 nvidia_satfinite serving_nvfp4 1x16, of 1x16"},
    {"torchao-nvfp4", kCompared, "e2m1 nvidia_satfinite torchao_nvfp4 1x16, of 1x16"},
    {"compressed-tensors-nvfp4", kCompared, "e2m1 nvidia_satfinite compressed_nvfp4 1x16, of 1x16"},
    {"compressed-tensors-nvfp4-bf16", kCompared,
     "e2m1 nvidia_satfinite compressed_nvfp4_bf16 1x16, of 1x16"},
    {"modelopt-nvfp4", kCompared, "e2m1 nvidia_satfinite modelopt_nvfp4 1x16, of 1x16"},
    {"torchao-mxfp4-floor", kCompared, "e2m1 ocp_saturating torchao_mx_floor 1x32, of 1x32"},
    {"torchao-mxfp4-ceil", kCompared, "e2m1 ocp_saturating torchao_mx_ceil 1x32, of 1x32"},
    {"torchao-mxfp4-even", kCompared, "e2m1 ocp_saturating torchao_mx_even 1x32, of 1x32"},
    {"torchao-mxfp4-rceil", kCompared, "e2m1 ocp_saturating torchao_mx_rceil 1x32, of 1x32"},
    {"torchao-mxfp6-e2m3-floor", kCompared, "e2m3 ocp_saturating torchao_mx_floor 1x32, of 1x32"},
    {"torchao-mxfp6-e2m3-ceil", kCompared, "e2m3 ocp_saturating torchao_mx_ceil 1x32, of 1x32"},
    {"torchao-mxfp6-e2m3-even", kCompared, "e2m3 ocp_saturating torchao_mx_even 1x32, of 1x32"},
    {"torchao-mxfp6-e2m3-rceil", kCompared, "e2m3 ocp_saturating torchao_mx_rceil 1x32, of 1x32"},
    {"torchao-mxfp6-e3m2-floor", kCompared, "e3m2 ocp_saturating torchao_mx_floor 1x32, of 1x32"},
    {"torchao-mxfp6-e3m2-ceil", kCompared, "e3m2 ocp_saturating torchao_mx_ceil 1x32, of 1x32"},
    {"torchao-mxfp6-e3m2-even", kCompared, "e3m2 ocp_saturating torchao_mx_even 1x32, of 1x32"},
    {"torchao-mxfp6-e3m2-rceil", kCompared, "e3m2 ocp_saturating torchao_mx_rceil 1x32, of 1x32"},
    {"inference-static", kOwn, "e4m3fn ocp_saturating torchao 0x0, calibration",
     "e4m3fn ocp_saturating torchao 1x0"},
    {"inference-dynamic", kOwn, "e4m3fn ocp_saturating torchao 1x0"},
    {"vllm-per-token", kRead, "e4m3fn vllm vllm_token 1x0"},
    {"vllm-per-tensor", kRead, "e4m3fn vllm vllm_tensor 0x0"},
    {"vllm-group", kRead, "e4m3fn vllm_group vllm_group 1x128, of 1x128",
     "e4m3fn vllm_group vllm_group 128x128"},
    {"compressed-tensors", kCompared, "e4m3fn ocp_saturating quotient_eps 1x0"},
    {"compressed-tensors-bf16", kCompared, "e4m3fn ocp_saturating quotient_eps_bf16 1x0"},
    {"llm-compressor", kCompared, "e4m3fn ocp_saturating quotient_eps 1x0"},
    {"llm-compressor-bf16", kCompared, "e4m3fn ocp_saturating quotient_eps_bf16 1x0"},
    {"quanto", kCompared, "e4m3fn ocp_saturating quotient 0x0, momentum",
     "e4m3fn ocp_saturating quotient 1x0"},
    {"quanto-bf16", kCompared, "e4m3fn ocp_saturating quotient_bf16 0x0, momentum",
     "e4m3fn ocp_saturating quotient_bf16 1x0"},
    {"modelopt", kCompared, "e4m3fn ocp_saturating modelopt 0x0, calibration",
     "e4m3fn ocp_saturating quotient 0x0"},
    {"modelopt-bf16", kCompared, "e4m3fn ocp_saturating modelopt 0x0, calibration",
     "e4m3fn ocp_saturating fp32_scale_bf16 0x0"},
    {"modelopt-per-channel", kCompared, "e4m3fn ocp_saturating modelopt 1x0",
     "e4m3fn ocp_saturating quotient_or_one 1x0"},
    {"modelopt-qtensor-bf16", kCompared, "e4m3fn ocp_saturating modelopt 0x0, calibration",
     "e4m3fn ocp_saturating quotient_bf16 0x0"},
    {"torchao-inference", kCompared, "e4m3fn ocp_saturating quotient 1x0"},
    {"torchao-inference-bf16", kCompared, "e4m3fn ocp_saturating scale_bf16 1x0"},
    {"compressed-tensors-mxfp8", kCompared, "e4m3fn ocp_saturating compressed_mx 1x32, of 1x32"},
    {"compressed-tensors-mxfp4", kCompared, "e2m1 ocp_saturating compressed_mx 1x32, of 1x32"},
    {"compressed-tensors-mxfp6", kCompared, "e4m3fn ocp_saturating compressed_mx 1x32, of 1x32",
     "e2m3 ocp_saturating compressed_mx6 1x32, of 1x32"},
    {"compressed-tensors-mxfp8-bf16", kCompared,
     "e4m3fn ocp_saturating compressed_mx_bf16 1x32, of 1x32"},
    {"compressed-tensors-mxfp4-bf16", kCompared,
     "e2m1 ocp_saturating compressed_mx_bf16 1x32, of 1x32"},
    {"compressed-tensors-mxfp6-bf16", kCompared,
     "e4m3fn ocp_saturating compressed_mx_bf16 1x32, of 1x32",
     "e2m3 ocp_saturating compressed_mx6 1x32, of 1x32"},
    {"modelopt-mxfp8", kCompared, "e4m3fn ocp_saturating modelopt_mxfp8 1x32, of 1x32"},
    {"modelopt-mxfp4", kCompared, "e2m1 ocp_saturating modelopt_mxfp4 1x32, of 1x32"},
    {"flax-fp8", kCompared, "e4m3fn ocp_saturating flax 0x0, delayed, other delayed options", "",
     "e5m2 ocp_saturating flax 0x0, delayed, other delayed options"},
    {"flax-fp8-bf16", kCompared,
     "e4m3fn ocp_saturating flax_bf16 0x0, delayed, other delayed options", "",
     "e5m2 ocp_saturating flax_bf16 0x0, delayed, other delayed options"},
    {"qwix", kCompared, "e4m3fn ocp_saturating qwix 1x0"},
    {"qwix-bf16", kCompared, "e4m3fn ocp_saturating qwix_bf16 1x0"},
};

}  // namespace

TEST_CASE("quantize: NaN, Inf and empty tensors give the documented result", "[scaling]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> all_nan(4, kNan);
  const QuantizedTensor te = quantize(find_preset("te-current").activation, {all_nan, 2, 2});
  CHECK(te.scales == std::vector<float>{1.0F});
  CHECK(te.codes == CodeVector(4, 0x7f));
  const QuantizedTensor ao =
      quantize(find_preset("torchao-tensorwise").activation, {all_nan, 2, 2});
  CHECK(std::isnan(ao.scales[0]));

  const std::vector<float> with_inf{1.0F, -kInf, 2.0F, 0.0F};
  const QuantizedTensor inf = quantize(find_preset("te-current").activation, {with_inf, 2, 2});
  CHECK(inf.scales == std::vector<float>{1.0F});
  CHECK(inf.codes == CodeVector{0x38, 0xfe, 0x40, 0x00});

  const std::vector<float> zeros(128, 0.0F);
  const QuantizedTensor ds = quantize(find_preset("deepseek-v3-first").activation, {zeros, 1, 128});
  CHECK((ds.codes[0] & 0x7f) == 0x7f);  // 0 / 0, as its kernel had it
  CHECK(quantize(find_preset("deepseek-v3").activation, {zeros, 1, 128}).codes[0] == 0);
  CHECK(quantize(find_preset("deepgemm").activation, {zeros, 1, 128}).codes[0] == 0);

  for (const Preset& preset : presets()) {
    if (is_calibrated(preset.activation)) continue;
    const QuantizedTensor none = Quantizer(preset.activation).quantize({{}, 0, 128});
    INFO(preset.name);
    CHECK(none.codes.empty());
    CHECK(dequantize(none).empty());
  }
}

TEST_CASE("quantize: delayed recipes use the past", "[scaling]") {
  Quantizer quantizer(find_preset("te-delayed").activation);
  const std::vector<float> small{1.0F, -2.0F};
  const std::vector<float> large{1000.0F, 4.0F};
  CHECK(quantizer.quantize({small, 1, 2}).scales[0] == 1.0F);
  const QuantizedTensor q = quantizer.quantize({large, 1, 2});
  CHECK(q.scales[0] == 224.0F);
  CHECK(q.codes == CodeVector{0x7e, 0x7e});  // both saturate
  CHECK(quantizer.quantize({small, 1, 2}).scales[0] == 448.0F / 1000.0F);
  Quantizer observed(find_preset("te-delayed").activation);
  observed.observe({small, 1, 2});
  CHECK(observed.quantize({large, 1, 2}).codes == q.codes);
}

TEST_CASE("quantize: static recipes use the calibration", "[scaling]") {
  Quantizer quantizer(find_preset("inference-static").activation);
  const std::vector<float> a{1.0F, -2.0F};
  const std::vector<float> b{4.0F, 0.5F};
  CHECK_THROWS_WITH(quantizer.quantize({a, 1, 2}), contains("calibration"));
  quantizer.observe({a, 1, 2});
  quantizer.observe({b, 1, 2});
  quantizer.observe({a, 1, 2});
  CHECK(quantizer.quantize({a, 1, 2}).scales[0] == 112.0F);
  const std::vector<float> bad{1.0F, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_WITH(quantizer.observe({bad, 1, 2}), contains("NaN or Inf"));
}

TEST_CASE("quantize: quanto averages the inverse scales of its batches", "[scaling]") {
  Quantizer quantizer(find_preset("quanto").activation);
  const std::vector<float> a{448.0F * 4.0F};
  const std::vector<float> b{448.0F * 2.0F};
  CHECK_THROWS_WITH(quantizer.quantize({a, 1, 1}), contains("calibration"));
  quantizer.observe({a, 1, 1});
  CHECK(quantizer.quantize({a, 1, 1}).inverse_scales[0] == 4.0F);
  quantizer.observe({b, 1, 1});
  CHECK(quantizer.quantize({a, 1, 1}).inverse_scales[0] ==
        0.9F * 4.0F + 2.0F * static_cast<float>(1.0 - 0.9));
}

TEST_CASE("quantize: a field that a recipe's source does not use is refused", "[scaling]") {
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .power_of_two = true}),
                    contains("power_of_two"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .amax_floor = 1.0F}),
                    contains("amax_floor"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.delayed = {.history = 8}}), contains("delayed"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.window = 2}), contains("window"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.rule = ScaleRule::torchao, .source = ScaleSource::delayed}),
                    contains("rule: expected te, flax or flax_bf16 for source delayed"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.rule = ScaleRule::deepseek, .power_of_two = true}),
                    contains("power_of_two"));
  Recipe floored = find_preset("deepseek-v3-first").activation;
  floored.amax_floor = 8.0F;
  const std::vector<float> ones(128, 1.0F);
  CHECK(quantize(floored, {ones, 1, 128}).inverse_scales[0] == 8.0F / 448.0F);
}

TEST_CASE("quantize: vLLM's clamps turn NaN into numbers", "[scaling]") {
  std::vector<float> x(128, 1.0F);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const FloatMatrix row{x, 1, 128};
  CHECK(quantize(find_preset("vllm-per-token").activation, row).codes[5] == 0x7e);
  CHECK(quantize(find_preset("vllm-per-tensor").activation, row).codes[5] == 0x7e);
  CHECK(quantize(find_preset("vllm-group").activation, row).codes[5] == 0xfe);
  const std::vector<float> zeros(128, 0.0F);
  CHECK(quantize(find_preset("vllm-per-tensor").activation, {zeros, 1, 128}).codes[0] == 0x7e);
  CHECK(quantize(find_preset("vllm-per-token").activation, {zeros, 1, 128}).codes[0] == 0x00);
}

TEST_CASE("quantizer: a past goes on elsewhere with the same bits", "[scaling]") {
  // A history that is longer than the steps, one that wraps around, MS-AMP inside and past its
  // warm-up, and both kinds of calibration; an Inf keeps a delayed scale at what it was.
  Recipe wraps = find_preset("te-delayed").gradient;
  wraps.delayed.history = 3;
  Recipe windowed = find_preset("ms-amp").activation;
  windowed.window = 4;
  for (const Recipe& recipe :
       {find_preset("te-delayed").activation, wraps, find_preset("ms-amp").weight, windowed,
        find_preset("inference-static").activation, find_preset("quanto").activation,
        find_preset("te-current").activation}) {
    const bool calibrated =
        recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum;
    INFO(to_string(recipe.source) << ", window " << recipe.window);
    Quantizer original(recipe);
    for (std::uint64_t step = 0; step < 12; ++step) {
      std::vector<float> x = log_normal(96, step);
      if (step == 5 && !calibrated) x[7] = std::numeric_limits<float>::infinity();
      if (calibrated) original.observe({x, 3, 32});
      Quantizer other(recipe);
      other.set_past(original.past());
      CHECK(other.past() == original.past());
      CHECK(same(original.quantize({x, 3, 32}), other.quantize({x, 3, 32})));
      CHECK(other.past() == original.past());
    }
    CHECK(original.past().empty() == (recipe.source == ScaleSource::current));
  }
  for (const char* name : {"inference-static", "quanto"}) {  // samples of zeros are samples
    INFO(name);
    Quantizer original(find_preset(name).activation);
    const std::vector<float> zeros(32, 0.0F);
    original.observe({zeros, 1, 32});
    Quantizer other(find_preset(name).activation);
    other.set_past(original.past());
    CHECK(other.past() == original.past());
    const std::vector<float> x = log_normal(32);
    CHECK(same(original.quantize({x, 1, 32}), other.quantize({x, 1, 32})));
  }
  Quantizer fresh(find_preset("inference-static").activation);
  fresh.set_past(fresh.past());
  const std::vector<float> ones(8, 1.0F);
  CHECK_THROWS_WITH(fresh.quantize({ones, 1, 8}), contains("calibration: expected at least one"));
  CHECK_THROWS_WITH(fresh.set_past(ones), contains("past: expected 1 value, got 8"));
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn).restore(1.0F, ones),
                    contains("history: expected 1024 slots, got 8"));
  CHECK_THROWS_WITH(MsAmpScaling(FormatId::e4m3fn, 8).restore(1.0F, 9, ones),
                    contains("updates: expected 0 to 8, got 9"));
}

TEST_CASE("presets: operands of a second product, origins", "[scaling]") {
  using enum TensorRole;
  using enum LinearProduct;
  const Preset& hp = find_preset("torchao-rowwise-hp-wgrad");
  CHECK(hp.recipe(weight, fprop).row_block == 1);
  CHECK(hp.recipe(weight, dgrad).row_block == 0);
  CHECK(hp.recipe(gradient, dgrad).row_block == 1);
  CHECK_THROWS_WITH(hp.recipe(gradient, wgrad), contains("wgrad"));
  CHECK_THROWS_WITH(hp.recipe(activation, dgrad), contains("activation enters"));
  CHECK(find_preset("te-current").recipe(gradient, wgrad).format == FormatId::e5m2);
  CHECK(find_linear_product("dgrad") == dgrad);
  for (const Preset& preset : presets()) {
    INFO(preset.name);
    CHECK(!preset.used_by.empty());
    CHECK(!preset.source.empty());
    CHECK(preset.not_compared.empty() == (preset.evidence != Evidence::read));
  }
}

TEST_CASE("presets: four of five that have a system are compared with it", "[scaling]") {
  const auto count = [](Evidence evidence) {
    return std::ranges::count(presets(), evidence, &Preset::evidence);
  };
  CHECK(5 * count(Evidence::compared) >= 4 * (count(Evidence::compared) + count(Evidence::read)));
}

TEST_CASE("presets: each has the format, cast, rule, tiles and sizes of its system", "[scaling]") {
  REQUIRE(presets().size() == std::size(kPresetFields));
  for (std::size_t i = 0; i < presets().size(); ++i) {
    const Preset& preset = presets()[i];
    const PresetFields& expected = kPresetFields[i];
    const auto or_activation = [&](std::string_view text) {
      return std::string(text.empty() ? expected.activation : text);
    };
    INFO(preset.name);
    CHECK(preset.name == expected.name);
    CHECK(&find_preset(expected.name) == &preset);
    CHECK(to_string(preset.evidence) == expected.evidence);
    CHECK(recipe_text(preset.activation) == expected.activation);
    CHECK(recipe_text(preset.weight) == or_activation(expected.weight));
    CHECK(recipe_text(preset.gradient) == or_activation(expected.gradient));
    CHECK_FALSE(preset.activation_for_wgrad);
    CHECK_FALSE(preset.gradient_for_wgrad);
    const bool high_precision_wgrad = expected.name == "torchao-rowwise-hp-wgrad";
    CHECK(preset.high_precision_wgrad == high_precision_wgrad);
    CHECK(preset.weight_for_dgrad.has_value() == high_precision_wgrad);
  }
  CHECK(recipe_text(find_preset("torchao-rowwise-hp-wgrad").weight_for_dgrad.value()) ==
        "e4m3fn ocp_saturating torchao 0x0, power of two");
}

TEST_CASE("presets: a second product has its own recipe only for its operand", "[scaling]") {
  using enum TensorRole;
  using enum LinearProduct;
  Preset preset = find_preset("naive");
  std::int64_t rows = 1;
  for (Recipe* recipe : {&preset.activation, &preset.weight, &preset.gradient})
    recipe->row_block = rows++;
  const auto rows_of = [&](TensorRole role, LinearProduct product) {
    return preset.recipe(role, product).row_block;
  };
  CHECK(rows_of(activation, wgrad) == 1);
  CHECK(rows_of(weight, dgrad) == 2);
  CHECK(rows_of(gradient, wgrad) == 3);
  preset.activation_for_wgrad = Recipe{.row_block = 4};
  preset.weight_for_dgrad = Recipe{.row_block = 5};
  preset.gradient_for_wgrad = Recipe{.row_block = 6};
  CHECK(rows_of(activation, fprop) == 1);
  CHECK(rows_of(activation, wgrad) == 4);
  CHECK(rows_of(weight, fprop) == 2);
  CHECK(rows_of(weight, dgrad) == 5);
  CHECK(rows_of(gradient, dgrad) == 3);
  CHECK(rows_of(gradient, wgrad) == 6);
  CHECK_THROWS_WITH(preset.recipe(activation, dgrad), contains("product: expected a product that"));
  CHECK_THROWS_WITH(preset.recipe(weight, wgrad), contains("the weight enters, got wgrad"));
  CHECK_THROWS_WITH(preset.recipe(gradient, fprop), contains("the gradient enters, got fprop"));
  preset.high_precision_wgrad = true;
  CHECK(rows_of(activation, fprop) == 1);
  CHECK(rows_of(gradient, dgrad) == 3);
  CHECK_THROWS_WITH(preset.recipe(activation, wgrad), contains("that naive computes in FP8"));
}

TEST_CASE("quantize: a NaN of either sign has the code that the policy has for a product",
          "[scaling]") {
  // GPUs give every NaN product the same bits, so that no policy sees its sign.
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{kNan, -kNan, 1.0F, -1.0F};
  struct Codes {
    NanPolicy policy;
    int e4m3;
    int e5m2;
  };
  for (const Codes& codes : {Codes{NanPolicy::positive_all_ones, 0x7f, 0x7f},
                             {NanPolicy::signed_all_ones, 0x7f, 0x7f},
                             {NanPolicy::signed_quiet, 0x7f, 0x7e},
                             {NanPolicy::positive_max, 0x7e, 0x7b},
                             {NanPolicy::negative_max, 0xfe, 0xfb}})
    for (const ScaleRule rule : {ScaleRule::unit, ScaleRule::te, ScaleRule::vllm_token})
      for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2})
        for (const std::int64_t rows : {0, 1, 2})
          for (const Target target : available_targets()) {
            const int nan = id == FormatId::e4m3fn ? codes.e4m3 : codes.e5m2;
            const QuantizedTensor q = quantize(
                {.format = id, .policy = {.nan = codes.policy}, .rule = rule, .row_block = rows},
                {x, 2, 2}, false, 1, target);
            INFO(to_string(codes.policy) << " " << to_string(rule) << " " << format(id).name << " "
                                         << rows << " rows " << to_string(target));
            CHECK(int{q.codes[0]} == nan);
            CHECK(int{q.codes[1]} == nan);
            if (rule != ScaleRule::unit) continue;
            const int one = id == FormatId::e4m3fn ? 0x38 : 0x3c;
            CHECK(int{q.codes[2]} == one);
            CHECK(int{q.codes[3]} == (one | 0x80));
          }
}

TEST_CASE("quantize: bad arguments are named", "[scaling]") {
  const std::vector<float> x(130, 1.0F);
  CHECK_THROWS_WITH(quantize(find_preset("te-blockwise").activation, {x, 1, 130}),
                    contains("divisible by 128"));
  CHECK_THROWS_WITH(quantize(find_preset("mxfp8-floor").activation, {x, 1, 130}),
                    contains("k divisible by 32, got 130"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 2, 64}), contains("[2, 64] = 128 values, got 130"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, -1, -130}), contains("rows >= 0"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.k_block = -1}), contains("0x-1"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .k_block = 128}),
                    contains("one tile"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.format = FormatId::bf16}), contains("8-bit"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.format = FormatId::e4m3fnuz, .rule = ScaleRule::mx_floor}),
                    contains("e4m3fn, e5m2"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.policy = {.rounding = RoundingMode::stochastic}}),
                    contains("stochastic"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 1, 130}, false, -1), contains("threads"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 1, 130}, false, 1, Target::neon), contains("target"));
  CHECK_THROWS_WITH(quantize(find_preset("te-delayed").activation, {x, 1, 130}),
                    contains("use Quantizer"));
  CHECK_THROWS_WITH(Quantizer(Recipe{}).observe({x, 1, 130}), contains("recipe"));
  CHECK_THROWS_WITH(find_preset("te-curent"), contains("te-current") && contains("'te-curent'"));
  CHECK_THROWS_WITH(find_tensor_role("bias"), contains("activation, weight or gradient"));
}
