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
Preset te_nvfp4() {
  Recipe vector = nvfp4(ScaleRule::te_nvfp4, 1);
  vector.rows_multiple = 16;
  Recipe square = vector;
  square.row_block = 16;
  return operands("te-nvfp4", vector, square, vector,
                  {"TransformerEngine NVFP4BlockScaling without its random Hadamard transform and "
                   "stochastic rounding",
                   "TransformerEngine, common/cast/nvfp4/core_nvfp4.cuh (0718c016)"});
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
  constexpr std::string_view kOcp = "OCP MX 1.0, sections 5.4.1 and 6.3";
  constexpr std::string_view kCompressed =
      "compressed-tensors 0.20.0, quantization/utils/helpers.py, "
      "compressors/nvfp4/helpers.py";
  std::vector<Preset> all{
      same("mxfp4", mx(FormatId::e2m1, ScaleRule::mx_floor), {"OCP MX 1.0, MXFP4", kOcp}),
      same("mxfp6-e2m3", mx(FormatId::e2m3, ScaleRule::mx_floor), {"OCP MX 1.0, MXFP6", kOcp}),
      same("mxfp6-e3m2", mx(FormatId::e3m2, ScaleRule::mx_floor), {"OCP MX 1.0, MXFP6", kOcp}),
      same("nvfp4", nvfp4(ScaleRule::nvfp4, 1),
           {"NVFP4 as NVIDIA describes it, 1x16 tiles of all operands",
            "arXiv 2509.25149, appendix on quantization"}),
      te_nvfp4(),
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
