#include "fp8lab/scaling/preset_list.hpp"

namespace fp8lab::scaling_detail {
namespace {

Recipe whole(ScaleRule rule, const CastPolicy& policy = kOcpSaturating) {
  return {.policy = policy, .rule = rule};
}

Recipe per_row(ScaleRule rule, const CastPolicy& policy = kOcpSaturating) {
  return tiles(whole(rule, policy), 1, 0);
}

Recipe calibrated(Recipe recipe) {
  recipe.source = ScaleSource::calibration;
  return recipe;
}

Recipe averaged(Recipe recipe) {
  recipe.source = ScaleSource::momentum;
  return recipe;
}

/// No gradients are served: they are cast as activations are.
Preset served(std::string_view name, const Recipe& activation, const Recipe& weight,
              const Origin& origin) {
  return operands(name, activation, weight, activation, origin);
}

Preset plain_dynamic() {
  return served("inference-dynamic", per_row(ScaleRule::torchao), per_row(ScaleRule::torchao),
                {"no system: a scale per token and per weight channel", "-", Evidence::own});
}

Preset plain_static() {
  return served(
      "inference-static", calibrated(whole(ScaleRule::torchao)), per_row(ScaleRule::torchao),
      {"no system: calibrated activation, a scale per weight channel", "-", Evidence::own});
}

Preset vllm_groups() {
  Recipe recipe = whole(ScaleRule::vllm_group, kVllmGroup);
  Recipe vector = tiles(recipe, 1, 128);
  vector.k_multiple = 128;
  return served(
      "vllm-group", vector, tiles(recipe, 128, 128),
      {"vLLM per_token_group_quant_fp8, groups of 128",
       "vLLM, csrc/.../w8a8/fp8/per_token_group_quant.cu (0f5257e2)", Evidence::read, kGpuAlone});
}

}  // namespace

std::vector<Preset> serving_presets() {
  using enum ScaleRule;
  using enum Evidence;
  constexpr std::string_view kVllmFile = "vLLM, csrc/.../w8a8/fp8/common.cu (096d3dc9)";
  const Origin tensors{"compressed-tensors: a scale per token and per weight channel, in FP32",
                       "compressed-tensors 0.20.0, quantization/utils/helpers.py and "
                       "lifecycle/forward_helpers.py",
                       compared};
  Origin tensors_bf16 = tensors;
  tensors_bf16.used_by = "the same, of a BF16 model: scales and quotients are BF16";
  const Origin compressor{
      "LLM Compressor FP8_DYNAMIC, of an FP32 model: memoryless_minmax, then compressed-tensors",
      "llmcompressor 0.14.0.1, observers/min_max.py", compared};
  Origin compressor_bf16 = compressor;
  compressor_bf16.used_by = "the same, of a BF16 model";
  const Origin quanto{"quanto qfloat8: weight per channel, activation calibrated, in FP32",
                      "optimum-quanto 0.2.7, library/quantize.py and calibrate.py", compared};
  Origin quanto_bf16 = quanto;
  quanto_bf16.used_by = "the same, of a BF16 model: scales and quotients are BF16";
  constexpr std::string_view kExport =
      "nvidia-modelopt 0.47.0, torch/export/unified_export_hf.py and quant_utils.py (weight), "
      "torch/quantization/tensor_quant.py (activation)";
  const Origin modelopt_weights{
      "ModelOpt FP8 of an FP32 model, as exported (weight) and fake-quantized (activation)",
      kExport, compared};
  const Origin modelopt_bf16{
      "the same, of a BF16 model: the weight's scale is FP32, quotients are BF16", kExport,
      compared};
  const Origin modelopt_rows{
      "ModelOpt FP8_PER_CHANNEL_PER_TOKEN, as exported: in FP32, of any model", kExport, compared};
  const Origin modelopt_qtensor{
      "ModelOpt FP8QTensor (mtq.compress) of a BF16 model: the weight's scale and quotients are "
      "BF16",
      "nvidia-modelopt 0.47.0, torch/quantization/qtensor/fp8_tensor.py and tensor_quant.py",
      compared};
  const Origin ao{"torchao Float8DynamicActivationFloat8WeightConfig, PerRow, of FP32",
                  "torchao 0.18.0, quantization/quant_primitives.py", compared};
  Origin ao_bf16 = ao;
  ao_bf16.used_by = "the same, of a BF16 model: the scale is BF16, quotients are FP32";
  return {
      plain_static(),
      plain_dynamic(),
      served("vllm-per-token", per_row(vllm_token, kVllm), per_row(vllm_token, kVllm),
             {"vLLM dynamic_per_token_scaled_fp8_quant: floor 1 / (448 * 512)", kVllmFile, read,
              kGpuAlone}),
      served(
          "vllm-per-tensor", whole(vllm_tensor, kVllm), whole(vllm_tensor, kVllm),
          {"vLLM dynamic_scaled_fp8_quant: times 1 / scale, no floor", kVllmFile, read, kGpuAlone}),
      vllm_groups(),
      served("compressed-tensors", per_row(quotient_eps), per_row(quotient_eps), tensors),
      served("compressed-tensors-bf16", per_row(quotient_eps_bf16), per_row(quotient_eps_bf16),
             tensors_bf16),
      served("llm-compressor", per_row(quotient_eps), per_row(quotient_eps), compressor),
      served("llm-compressor-bf16", per_row(quotient_eps_bf16), per_row(quotient_eps_bf16),
             compressor_bf16),
      served("quanto", averaged(whole(quotient)), per_row(quotient), quanto),
      served("quanto-bf16", averaged(whole(quotient_bf16)), per_row(quotient_bf16), quanto_bf16),
      served("modelopt", calibrated(whole(modelopt)), whole(quotient), modelopt_weights),
      served("modelopt-bf16", calibrated(whole(modelopt)), whole(fp32_scale_bf16), modelopt_bf16),
      served("modelopt-per-channel", per_row(modelopt), per_row(quotient_or_one), modelopt_rows),
      served("modelopt-qtensor-bf16", calibrated(whole(modelopt)), whole(quotient_bf16),
             modelopt_qtensor),
      served("torchao-inference", per_row(quotient), per_row(quotient), ao),
      served("torchao-inference-bf16", per_row(scale_bf16), per_row(scale_bf16), ao_bf16),
  };
}

}  // namespace fp8lab::scaling_detail
