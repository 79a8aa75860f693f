// The microscaling types as the packages that write models compute them.

#include "fp8lab/scaling/preset_list.hpp"

namespace fp8lab::scaling_detail {
namespace {

Recipe mx(FormatId format, ScaleRule rule) {
  Recipe recipe = tiles({.format = format, .policy = kOcpSaturating, .rule = rule}, 1, 32);
  recipe.k_multiple = 32;
  return recipe;
}

constexpr std::string_view kCompressed =
    "compressed-tensors 0.20.0, quantization/utils/{mxfp_utils,helpers,fp4_utils,fp6_utils}.py";
constexpr std::string_view kModelopt =
    "nvidia-modelopt 0.47.0, torch/quantization/qtensor/mxfp8_tensor.py";
constexpr std::string_view kModelopt4 =
    "nvidia-modelopt 0.47.0, torch/quantization/qtensor/mxfp4_tensor.py";

/// Both types of a tensor: the sign of zeros depends on it.
void add_compressed(ScaleRule rule, bool is_bf16, std::vector<Preset>& all) {
  const auto origin = [&](std::string_view fp32, std::string_view bf16) {
    return Origin{is_bf16 ? bf16 : fp32, kCompressed, Evidence::compared};
  };
  const Recipe mxfp8 = mx(FormatId::e4m3fn, rule);
  all.push_back(
      same(is_bf16 ? "compressed-tensors-mxfp8-bf16" : "compressed-tensors-mxfp8", mxfp8,
           origin("compressed-tensors MXFP8, of FP32 tensors", "the same, of BF16 tensors")));
  all.push_back(
      same(is_bf16 ? "compressed-tensors-mxfp4-bf16" : "compressed-tensors-mxfp4",
           mx(FormatId::e2m1, rule),
           origin("compressed-tensors MXFP4, of FP32 tensors", "the same, of BF16 tensors")));
  all.push_back(
      operands(is_bf16 ? "compressed-tensors-mxfp6-bf16" : "compressed-tensors-mxfp6", mxfp8,
               mx(FormatId::e2m3, ScaleRule::compressed_mx6), mxfp8,
               origin("compressed-tensors MXFP6A8: E2M3 weights, MXFP8 inputs, for FP32 tensors",
                      "the same, of BF16 tensors")));
}

}  // namespace

std::vector<Preset> mx_serving_presets() {
  std::vector<Preset> all;
  add_compressed(ScaleRule::compressed_mx, false, all);
  add_compressed(ScaleRule::compressed_mx_bf16, true, all);
  all.push_back(same("modelopt-mxfp8", mx(FormatId::e4m3fn, ScaleRule::modelopt_mxfp8),
                     {"ModelOpt MXFP8QTensor", kModelopt, Evidence::compared}));
  all.push_back(same("modelopt-mxfp4", mx(FormatId::e2m1, ScaleRule::modelopt_mxfp4),
                     {"ModelOpt MXFP4QTensor: ties go toward zero, zeros become -0", kModelopt4,
                      Evidence::compared}));
  return all;
}

}  // namespace fp8lab::scaling_detail
