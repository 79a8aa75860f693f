#include "fp8lab/scaling/preset_list.hpp"

namespace fp8lab::scaling_detail {
namespace {

constexpr std::string_view kTorchao = "torchao 0.18.0, float8/config.py and float8/float8_utils.py";

Recipe e5m2(Recipe recipe) {
  recipe.format = FormatId::e5m2;
  return recipe;
}

/// E4M3 forward, E5M2 gradients: TransformerEngine's HYBRID.
Preset hybrid(std::string_view name, const Recipe& recipe, const Origin& origin) {
  return operands(name, recipe, recipe, e5m2(recipe), origin);
}

Preset te_blockwise() {
  Recipe recipe{.rule = ScaleRule::te, .power_of_two = true};
  recipe.rows_multiple = 128;
  recipe.k_multiple = 128;
  const Recipe vector = tiles(recipe, 1, 128);
  return operands(
      "te-blockwise", vector, tiles(recipe, 128, 128), vector,
      {"TransformerEngine Float8BlockScaling",
       "TransformerEngine, common/recipe/recipe_common.cuh (01c24fe0)", Evidence::read, kGpuAlone});
}

Recipe te_mx(std::int64_t rows) {
  Recipe recipe = tiles({.rule = ScaleRule::te_mx}, rows, 32);
  recipe.rows_multiple = 32;
  recipe.k_multiple = 32;
  return recipe;
}

Preset te_mxfp8() {
  return same("te-mxfp8", te_mx(1),
              {"TransformerEngine MXFP8BlockScaling (Blackwell)",
               "TransformerEngine, common/util/ptx.cuh (b7598aa8)", Evidence::read, kGpuAlone});
}

Preset te_mxfp8_2d() {
  return operands("te-mxfp8-2d", te_mx(1), te_mx(32), te_mx(1),
                  {"the same, with a scale for 32x32 of a weight, which serves both its products",
                   "TransformerEngine 2.20, tests/pytorch/test_mxfp8_2d_quantize.py",
                   Evidence::read, kGpuAlone});
}

Preset torchao_rowwise() {
  const Recipe recipe =
      tiles({.policy = kOcpSaturating, .rule = ScaleRule::torchao, .power_of_two = true}, 1, 0);
  return same("torchao-rowwise", recipe, {"torchao rowwise", kTorchao, Evidence::compared});
}

/// The weight of grad_input has one scale, and dW = dY^T X is not in FP8.
Preset torchao_rowwise_hp_wgrad() {
  Preset preset = torchao_rowwise();
  preset.name = "torchao-rowwise-hp-wgrad";
  preset.used_by = "torchao rowwise_with_gw_hp";
  preset.high_precision_wgrad = true;
  preset.weight_for_dgrad = tiles(preset.weight, 0, 0);
  return preset;
}

Preset torchao_blockwise() {
  Recipe recipe{.policy = kOcpSaturating, .rule = ScaleRule::torchao};
  recipe.k_multiple = 128;
  const Recipe vector = tiles(recipe, 1, 128);
  recipe.rows_multiple = 128;
  return operands(
      "torchao-blockwise", vector, tiles(recipe, 128, 128), vector,
      {"torchao blockwise training", "torchao 0.18.0, prototype/blockwise_fp8_training/kernels.py",
       Evidence::compared});
}

/// The kernels of the training run are not published: these are those of its inference code.
Preset deepseek_v3(std::string_view name, float amax_floor, const Origin& origin) {
  const Recipe recipe{
      .policy = kOcpNonsaturating, .rule = ScaleRule::deepseek, .amax_floor = amax_floor};
  Recipe vector = tiles(recipe, 1, 128);
  vector.k_multiple = 128;
  return operands(name, vector, tiles(recipe, 128, 128), vector, origin);
}

Preset deepgemm(std::string_view name, const Recipe& recipe, const Origin& origin) {
  const Recipe vector = tiles(recipe, 1, 128);
  return operands(name, vector, tiles(recipe, 128, 128), vector, origin);
}

/// One scale rule with the tiles of DeepSeek-V3, whose kernel clamps.
Preset deepseek_v32() {
  const Recipe recipe{
      .policy = kOcpSaturating, .rule = ScaleRule::deepseek_ue8m0, .amax_floor = 1e-4F};
  Recipe vector = tiles(recipe, 1, 128);
  vector.k_multiple = 128;
  return operands("deepseek-v3.2", vector, tiles(recipe, 128, 128), vector,
                  {"DeepSeek-V3.2 with UE8M0 scales; 128x128 weights *assumed* to follow",
                   "DeepSeek-V3.2-Exp, inference/kernel.py (3b99a53)", Evidence::read,
                   "the kernel is TileLang's, for GPUs"});
}

Preset ms_amp() {
  const auto window = [](FormatId format, std::int64_t size) {
    Recipe recipe{.format = format, .rule = ScaleRule::ms_amp, .source = ScaleSource::ms_amp};
    recipe.window = size;
    return recipe;
  };
  return operands("ms-amp", window(FormatId::e4m3fn, 16), window(FormatId::e4m3fn, 1),
                  window(FormatId::e5m2, 16),
                  {"MS-AMP (FP8-LM)", "MS-AMP, msamp/common/tensor/meta.py (c36850a3)",
                   Evidence::read, "no package: MS-AMP is built from source, for GPUs"});
}

}  // namespace

std::vector<Preset> training_presets() {
  const Recipe tensorwise{.policy = kOcpSaturating, .rule = ScaleRule::torchao};
  const Recipe gemm{.policy = kOcpSaturating, .rule = ScaleRule::deepgemm};
  Recipe ue8m0 = gemm;
  ue8m0.power_of_two = true;
  Recipe first = gemm;
  first.rule = ScaleRule::deepgemm_first;
  constexpr std::string_view kGemm = "DeepGEMM, deep_gemm/utils/math.py (54e2261)";
  constexpr std::string_view kTriton =
      "the kernel is Triton's, whose interpreter rounds FP8 casts wrongly";
  return {
      hybrid("te-current", {},
             {"TransformerEngine Float8CurrentScaling",
              "TransformerEngine 2.20.2, pytorch/custom_recipes/reference_current_scaling.py",
              Evidence::compared}),
      hybrid("te-delayed", {.source = ScaleSource::delayed},
             {"TransformerEngine DelayedScaling",
              "TransformerEngine, common/recipe/delayed_scaling.cu (6b71a0ad)", Evidence::read,
              kGpuAlone}),
      te_blockwise(),
      te_mxfp8(),
      te_mxfp8_2d(),
      hybrid("torchao-tensorwise", tensorwise,
             {"torchao tensorwise", kTorchao, Evidence::compared}),
      torchao_rowwise(),
      torchao_rowwise_hp_wgrad(),
      torchao_blockwise(),
      deepseek_v3("deepseek-v3", 1e-4F,
                  {"DeepSeek-V3, current version (E4M3 in all three GEMMs), amax at least 1e-4",
                   "DeepSeek-V3, inference/kernel.py since V3.1", Evidence::read, kTriton}),
      deepseek_v3("deepseek-v3-first", 0.0F,
                  {"DeepSeek-V3's first release: a tile of zeros becomes NaN",
                   "DeepSeek-V3, inference/kernel.py (06231633)", Evidence::read, kTriton}),
      deepseek_v32(),
      deepgemm("deepgemm", gemm, {"DeepGEMM with FP32 scales (Hopper)", kGemm, Evidence::compared}),
      deepgemm("deepgemm-ue8m0", ue8m0,
               {"DeepGEMM with UE8M0 scales (Blackwell)", kGemm, Evidence::compared}),
      deepgemm(
          "deepgemm-first", first,
          {"DeepGEMM's first release: times 448 / amax",
           "sglang 0.5.23, benchmark/deepseek_utils.py; DeepGEMM, tests/test_core.py (f0314fa6)",
           Evidence::compared}),
      ms_amp(),
      same("naive", {.rule = ScaleRule::unit},
           {"a plain cast without a scale", "-", Evidence::own}),
  };
}

std::vector<Preset> mx_presets() {
  const auto mx = [](ScaleRule rule) {
    Recipe recipe = tiles({.policy = kOcpSaturating, .rule = rule}, 1, 32);
    recipe.k_multiple = 32;
    return recipe;
  };
  const auto torchao = [&](std::string_view name, ScaleRule rule, std::string_view used_by) {
    return same(name, mx(rule),
                {used_by, "torchao 0.18.0, prototype/mx_formats/mx_tensor.py", Evidence::compared});
  };
  constexpr std::string_view kOcp = "OCP MX 1.0, sections 5.4.1 and 6.3; gfloat 0.5.2";
  constexpr std::string_view kEnds =
      "E8M0 as in OCP, with the exponent rounded as in other systems";
  return {
      same("ocp-mxfp8", mx(ScaleRule::mx_floor), {"OCP MX 1.0", kOcp, Evidence::compared}),
      same("mxfp8-floor", mx(ScaleRule::mx_floor),
           {"OCP MX 1.0, the same as ocp-mxfp8", kOcp, Evidence::compared}),
      same("mxfp8-ceil", mx(ScaleRule::mx_ceil),
           {"OCP's scales with the exponent rounded up", kEnds, Evidence::own}),
      same("mxfp8-even", mx(ScaleRule::mx_even),
           {"OCP's scales with amax rounded to the element's mantissa", kEnds, Evidence::own}),
      same("mxfp8-rceil", mx(ScaleRule::mx_rceil),
           {"OCP's scales with the exponent of amax / 448 rounded up",
            "cuBLAS documentation, 1D block quantization; values that are not finite: OCP",
            Evidence::read, "a formula of cuBLAS's manual: no package computes it on a CPU"}),
      torchao("torchao-mxfp8-floor", ScaleRule::torchao_mx_floor, "torchao to_mx FLOOR"),
      torchao("torchao-mxfp8-ceil", ScaleRule::torchao_mx_ceil, "torchao to_mx CEIL"),
      torchao("torchao-mxfp8-even", ScaleRule::torchao_mx_even, "torchao to_mx EVEN"),
      torchao("torchao-mxfp8-rceil", ScaleRule::torchao_mx_rceil, "torchao to_mx RCEIL"),
  };
}

/// Flax keeps a scale and a history a tensor; qwix has a scale a row, of either operand.
std::vector<Preset> jax_presets() {
  using enum ScaleRule;
  constexpr std::string_view kFlax = "flax 0.12.8, linen/fp8_ops.py";
  constexpr std::string_view kQwix = "qwix 0.1.8, _src/core/{numerics,qarray}.py";
  const auto delayed = [](ScaleRule rule) {
    return Recipe{.policy = kOcpSaturating,
                  .rule = rule,
                  .source = ScaleSource::delayed,
                  .delayed = {.zero_amax = ZeroAmax::roll}};
  };
  const auto rows = [](ScaleRule rule) {
    return tiles({.policy = kOcpSaturating, .rule = rule}, 1, 0);
  };
  return {
      hybrid("flax-fp8", delayed(flax),
             {"Flax Fp8DotGeneralOp (MaxText), of FP32 tensors", kFlax, Evidence::compared}),
      hybrid("flax-fp8-bf16", delayed(flax_bf16),
             {"the same, of BF16 tensors: quotients are BF16", kFlax, Evidence::compared}),
      same("qwix", rows(qwix),
           {"qwix float8_e4m3fn, absmax, channelwise, of FP32 tensors", kQwix, Evidence::compared}),
      same("qwix-bf16", rows(qwix_bf16),
           {"the same, of BF16 tensors: scales and quotients are BF16", kQwix, Evidence::compared}),
  };
}

}  // namespace fp8lab::scaling_detail
