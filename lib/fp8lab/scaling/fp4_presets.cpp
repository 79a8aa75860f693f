// FP4 and FP6: OCP's microscaling types and NVFP4.

#include <array>

#include "fp8lab/scaling/preset_list.hpp"

namespace fp8lab::scaling_detail {
namespace {

Recipe mx(FormatId format, ScaleRule rule) {
  Recipe recipe = tiles({.format = format, .policy = kOcpSaturating, .rule = rule}, 1, 32);
  recipe.k_multiple = 32;
  return recipe;
}

Recipe nvfp4(ScaleRule rule, std::int64_t rows) {
  Recipe recipe = tiles({.format = FormatId::e2m1, .rule = rule}, rows, 16);
  recipe.k_multiple = 16;
  return recipe;
}

/// TransformerEngine takes multiples of 16 on both sides, and 16x16 tiles of weights.
Recipe te_nvfp4(ScaleRule rule, std::int64_t rows) {
  Recipe recipe = nvfp4(rule, rows);
  recipe.rows_multiple = 16;
  return recipe;
}

/// 4over6 is for activations and weights.
Preset te_nvfp4(std::string_view name, ScaleRule rule, std::string_view used_by) {
  return operands(name, te_nvfp4(rule, 1), te_nvfp4(rule, 16), te_nvfp4(ScaleRule::te_nvfp4, 1),
                  {used_by, "TransformerEngine 2.20.2, pytorch/custom_recipes/reference_nvfp4.py",
                   Evidence::compared});
}

/// Tiles of `side` elements; the package packs codes by rows, and scales as UE8M0.
Recipe deepgemm_fp4(std::int64_t side) {
  Recipe recipe =
      tiles({.format = FormatId::e2m1, .policy = kOcpSaturating, .rule = ScaleRule::deepgemm_fp4},
            1, side);
  recipe.k_multiple = 2;
  return recipe;
}

Recipe vllm_mxfp4() {
  Recipe recipe = tiles({.format = FormatId::e2m1, .rule = ScaleRule::vllm_mxfp4}, 1, 32);
  recipe.k_multiple = 32;
  return recipe;
}

/// One format under the names of torchao's four modes.
struct TorchaoMx {
  FormatId format;
  std::array<std::string_view, 4> names;
};

constexpr std::array<TorchaoMx, 3> kTorchao{
    {{FormatId::e2m1,
      {"torchao-mxfp4-floor", "torchao-mxfp4-ceil", "torchao-mxfp4-even", "torchao-mxfp4-rceil"}},
     {FormatId::e2m3,
      {"torchao-mxfp6-e2m3-floor", "torchao-mxfp6-e2m3-ceil", "torchao-mxfp6-e2m3-even",
       "torchao-mxfp6-e2m3-rceil"}},
     {FormatId::e3m2,
      {"torchao-mxfp6-e3m2-floor", "torchao-mxfp6-e3m2-ceil", "torchao-mxfp6-e3m2-even",
       "torchao-mxfp6-e3m2-rceil"}}}};
constexpr std::array kTorchaoRules{ScaleRule::torchao_mx_floor, ScaleRule::torchao_mx_ceil,
                                   ScaleRule::torchao_mx_even, ScaleRule::torchao_mx_rceil};
constexpr std::array<std::string_view, 4> kTorchaoModes{
    "torchao to_mx FLOOR", "torchao to_mx CEIL", "torchao to_mx EVEN", "torchao to_mx RCEIL"};

}  // namespace

std::vector<Preset> fp4_presets() {
  constexpr std::string_view kOcp = "OCP MX 1.0, sections 5.4.1 and 6.3; gfloat 0.5.2";
  constexpr std::string_view kGemm = "DeepGEMM, deep_gemm/utils/math.py (54e2261)";
  constexpr std::string_view kCompressed =
      "compressed-tensors 0.20.0, quantization/utils/helpers.py, "
      "compressors/nvfp4/helpers.py";
  std::vector<Preset> all{
      same("mxfp4", mx(FormatId::e2m1, ScaleRule::mx_floor),
           {"OCP MX 1.0, MXFP4", kOcp, Evidence::compared}),
      same("mxfp6-e2m3", mx(FormatId::e2m3, ScaleRule::mx_floor),
           {"OCP MX 1.0, MXFP6", kOcp, Evidence::compared}),
      same("mxfp6-e3m2", mx(FormatId::e3m2, ScaleRule::mx_floor),
           {"OCP MX 1.0, MXFP6", kOcp, Evidence::compared}),
      same("nvfp4", nvfp4(ScaleRule::nvfp4, 1),
           {"NVFP4 as NVIDIA describes it, 1x16 tiles of all operands",
            "arXiv 2509.25149, appendix on quantization", Evidence::read,
            "a formula of a paper, whose code is TransformerEngine's"}),
      te_nvfp4("te-nvfp4", ScaleRule::te_nvfp4,
               "TransformerEngine NVFP4BlockScaling without its random Hadamard transform and "
               "stochastic rounding"),
      te_nvfp4("te-nvfp4-4over6", ScaleRule::te_4over6_mae_256,
               "the same with 4over6 as it is set: by sums of errors, scales up to 256"),
      te_nvfp4("te-nvfp4-4over6-mse", ScaleRule::te_4over6_mse_256,
               "4over6 by sums of squared errors, scales up to 256"),
      te_nvfp4("te-nvfp4-4over6-448", ScaleRule::te_4over6_mae,
               "4over6 by sums of errors, scales up to 448"),
      te_nvfp4("te-nvfp4-4over6-mse-448", ScaleRule::te_4over6_mse,
               "4over6 by sums of squared errors, scales up to 448"),
      same("deepgemm-fp4", deepgemm_fp4(32),
           {"DeepGEMM FP4 with UE8M0 scales: ties toward zero", kGemm, Evidence::compared}),
      same("deepgemm-fp4-128", deepgemm_fp4(128),
           {"the same with a scale for 128 elements", kGemm, Evidence::compared}),
      same("vllm-mxfp4", vllm_mxfp4(),
           {"vLLM MXFP4 activations: the exponent first, then a threshold of 0.75",
            "vLLM, csrc/.../fp4/nvfp4_utils.cuh (pull request 43557)", Evidence::read, kGpuAlone}),
      same("serving-nvfp4", nvfp4(ScaleRule::serving_nvfp4, 1),
           {"flashinfer, TensorRT-LLM and vLLM NVFP4: reciprocals *assumed* to be rounded",
            "flashinfer fb28d7242, csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh",
            Evidence::read, "rcp.approx.ftz is an instruction of GPUs, and has no table"}),
      same("torchao-nvfp4", nvfp4(ScaleRule::torchao_nvfp4, 1),
           {"torchao NVFP4 with a dynamic per-tensor scale",
            "torchao 0.18.0, prototype/mx_formats/nvfp4_tensor.py", Evidence::compared}),
      same("compressed-tensors-nvfp4", nvfp4(ScaleRule::compressed_nvfp4, 1),
           {"compressed-tensors NVFP4, of FP32 tensors", kCompressed, Evidence::compared}),
      same("compressed-tensors-nvfp4-bf16", nvfp4(ScaleRule::compressed_nvfp4_bf16, 1),
           {"the same, of BF16 tensors", kCompressed, Evidence::compared}),
      same("modelopt-nvfp4", nvfp4(ScaleRule::modelopt_nvfp4, 1),
           {"ModelOpt NVFP4QTensor",
            "nvidia-modelopt 0.47.0, torch/quantization/qtensor/nvfp4_tensor.py",
            Evidence::compared}),
  };
  constexpr std::string_view kToMx = "torchao 0.18.0, prototype/mx_formats/mx_tensor.py";
  for (const TorchaoMx& type : kTorchao)
    for (std::size_t i = 0; i < type.names.size(); ++i)
      all.push_back(same(type.names[i], mx(type.format, kTorchaoRules[i]),
                         {kTorchaoModes[i], kToMx, Evidence::compared}));
  return all;
}

}  // namespace fp8lab::scaling_detail
