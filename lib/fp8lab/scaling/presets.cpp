#include "fp8lab/scaling/presets.hpp"

#include <array>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"activation", "weight", "gradient"};

Recipe e5m2(Recipe recipe) {
  recipe.format = FormatId::e5m2;
  return recipe;
}

/// E4M3 forward, E5M2 gradients: TransformerEngine's HYBRID.
Preset hybrid(std::string_view name, const Recipe& recipe, std::string_view used_by) {
  return {name, recipe, recipe, e5m2(recipe), false, used_by};
}

Preset same(std::string_view name, const Recipe& recipe, std::string_view used_by) {
  return {name, recipe, recipe, recipe, false, used_by};
}

Recipe tiles(Recipe recipe, std::int64_t row_block, std::int64_t k_block) {
  recipe.row_block = row_block;
  recipe.k_block = k_block;
  return recipe;
}

Recipe mx(ScaleRule rule, const CastPolicy& policy) {
  Recipe recipe = tiles({.policy = policy, .rule = rule}, 1, 32);
  recipe.k_multiple = 32;
  return recipe;
}

Preset te_blockwise() {
  Recipe recipe{.rule = ScaleRule::te, .power_of_two = true};
  recipe.rows_multiple = 128;
  recipe.k_multiple = 128;
  const Recipe vector = tiles(recipe, 1, 128);
  return {"te-blockwise", vector, tiles(recipe, 128, 128),
          vector,         false,  "TransformerEngine Float8BlockScaling"};
}

Preset te_mxfp8() {
  Recipe recipe = mx(ScaleRule::te_mx, kNvidiaSatfinite);
  recipe.rows_multiple = 32;
  return same("te-mxfp8", recipe, "TransformerEngine MXFP8BlockScaling (Blackwell)");
}

/// *Read* in inference/kernel.py of DeepSeek-V3's repository as released with the model: amax / 448
/// without a floor, so that a tile of zeros becomes NaN. Copies of a later version of that file
/// clamp amax at 1e-4, as `deepgemm` does; the kernels of the training run are not published.
Preset deepseek_v3() {
  Recipe recipe{.policy = kOcpNonsaturating, .rule = ScaleRule::deepseek};
  Recipe vector = tiles(recipe, 1, 128);
  vector.k_multiple = 128;
  return {"deepseek-v3", vector, tiles(recipe, 128, 128),
          vector,        false,  "DeepSeek-V3 (E4M3 in all three GEMMs)"};
}

Preset deepgemm(std::string_view name, bool ue8m0) {
  Recipe recipe{.policy = kOcpNonsaturating, .rule = ScaleRule::deepgemm, .power_of_two = ue8m0};
  const Recipe vector = tiles(recipe, 1, 128);
  return {name,
          vector,
          tiles(recipe, 128, 128),
          vector,
          false,
          ue8m0 ? "DeepGEMM with UE8M0 scales (Blackwell)" : "DeepGEMM with FP32 scales (Hopper)"};
}

Preset torchao_rowwise(std::string_view name, bool high_precision_wgrad) {
  const Recipe recipe =
      tiles({.policy = kOcpSaturating, .rule = ScaleRule::torchao, .power_of_two = true}, 1, 0);
  return {name,
          recipe,
          recipe,
          recipe,
          high_precision_wgrad,
          high_precision_wgrad ? "torchao rowwise_with_gw_hp" : "torchao rowwise"};
}

Preset ms_amp() {
  const auto window = [](FormatId format, std::int64_t size) {
    Recipe recipe{.format = format, .rule = ScaleRule::ms_amp, .source = ScaleSource::ms_amp};
    recipe.window = size;
    return recipe;
  };
  return {"ms-amp",
          window(FormatId::e4m3fn, 16),
          window(FormatId::e4m3fn, 1),
          window(FormatId::e5m2, 16),
          false,
          "MS-AMP (FP8-LM)"};
}

Preset inference(std::string_view name, bool with_calibration) {
  const Recipe per_row = tiles({.policy = kOcpSaturating, .rule = ScaleRule::torchao}, 1, 0);
  Recipe whole{.policy = kOcpSaturating, .rule = ScaleRule::torchao};
  whole.source = ScaleSource::calibration;
  return {name,
          with_calibration ? whole : per_row,
          per_row,
          per_row,
          false,
          with_calibration ? "inference: calibrated activation, a scale per weight channel"
                           : "inference: a scale per token and per weight channel"};
}

std::vector<Preset> make_presets() {
  const Recipe current{};
  Recipe delayed{.source = ScaleSource::delayed};
  Recipe naive{.rule = ScaleRule::unit};
  const Recipe tensorwise{.policy = kOcpSaturating, .rule = ScaleRule::torchao};
  return {hybrid("te-current", current, "TransformerEngine Float8CurrentScaling"),
          hybrid("te-delayed", delayed, "TransformerEngine DelayedScaling"),
          te_blockwise(),
          te_mxfp8(),
          hybrid("torchao-tensorwise", tensorwise, "torchao tensorwise"),
          torchao_rowwise("torchao-rowwise", false),
          torchao_rowwise("torchao-rowwise-hp-wgrad", true),
          deepseek_v3(),
          deepgemm("deepgemm", false),
          deepgemm("deepgemm-ue8m0", true),
          ms_amp(),
          same("mxfp8-floor", mx(ScaleRule::mx_floor, kOcpSaturating), "OCP MX 1.0, torchao FLOOR"),
          same("mxfp8-ceil", mx(ScaleRule::mx_ceil, kOcpSaturating), "torchao CEIL"),
          same("mxfp8-even", mx(ScaleRule::mx_even, kOcpSaturating), "torchao EVEN"),
          same("mxfp8-rceil", mx(ScaleRule::mx_rceil, kOcpSaturating), "torchao RCEIL, cuBLAS"),
          inference("inference-static", true),
          inference("inference-dynamic", false),
          same("naive", naive, "a plain cast without a scale")};
}

}  // namespace

std::string_view to_string(TensorRole role) { return kRoles[static_cast<std::size_t>(role)]; }

TensorRole find_tensor_role(std::string_view name) {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    if (kRoles[i] == name) return static_cast<TensorRole>(i);
  throw Error("role", "activation, weight or gradient", "'" + std::string(name) + "'");
}

const Recipe& Preset::recipe(TensorRole role) const {
  if (role == TensorRole::weight) return weight;
  return role == TensorRole::gradient ? gradient : activation;
}

std::span<const Preset> presets() {
  static const std::vector<Preset> kPresets = make_presets();
  return kPresets;
}

const Preset& find_preset(std::string_view name) {
  std::string known;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw Error("recipe", "one of " + known, "'" + std::string(name) + "'");
}

}  // namespace fp8lab
