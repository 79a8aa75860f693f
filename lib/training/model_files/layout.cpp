#include "training/model_files/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/blocked_scales.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 4> kTileNames{"tensor", "row", "block", "group"};
constexpr std::array<std::string_view, 6> kInputNames{"token",      "group",     "tensor",
                                                      "calibrated", "two_level", "stays"};
constexpr std::string_view kWeight = ".weight";

constexpr std::array<GroupElements, 4> kCompressedGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                          {FormatId::e2m3, ScaleKind::e8m0},
                                                          {FormatId::e2m1, ScaleKind::e8m0},
                                                          {FormatId::e2m1, ScaleKind::two_level}}};
constexpr std::array<GroupElements, 3> kModeloptGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                        {FormatId::e2m1, ScaleKind::e8m0},
                                                        {FormatId::e2m1, ScaleKind::two_level}}};
constexpr std::array<GroupElements, 3> kTorchaoGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                       {FormatId::e2m1, ScaleKind::e8m0},
                                                       {FormatId::e2m1, ScaleKind::two_level}}};
constexpr std::array<GroupElements, 1> kMxfp8Groups{{{FormatId::e4m3fn, ScaleKind::e8m0}}};
constexpr std::array<GroupElements, 1> kMxfp4Groups{{{FormatId::e2m1, ScaleKind::e8m0}}};

constexpr std::array<Layout, 10> kLayouts{{
    {.name = "compressed-tensors",
     .family = LayoutFamily::compressed_tensors,
     .method = "compressed-tensors",
     .codes = "weight",
     .scale = "weight_scale",
     .input_scale = "input_scale",
     .kept_key = "ignore",
     .takes = {true, true, true},
     .groups = kCompressedGroups,
     .source = "compressed-tensors 0.20.0, quantization/lifecycle/initialize.py and "
               "compressors/{naive_quantized,nvfp4,mxfp4,mxfp6,mxfp8}/base.py",
     .scalar_dimensions = 1,
     .row_dimensions = 2,
     .has_bf16_scales = true,
     .mixes_schemes = true},
    {.name = "modelopt",
     .family = LayoutFamily::modelopt,
     .method = "modelopt",
     .codes = "weight",
     .scale = "weight_scale",
     .input_scale = "input_scale",
     .kept_key = "ignore",
     .takes = {true, true, true},
     .groups = kModeloptGroups,
     .source = "nvidia-modelopt 0.47.0, torch/export/quant_utils.py, unified_export_hf.py and "
               "convert_hf_config.py",
     .spreads_blocks = true,
     .mixes_schemes = true},
    {.name = "hf-fp8",
     .family = LayoutFamily::fp8,
     .method = "fp8",
     .codes = "weight",
     .scale = "weight_scale_inv",
     .input_scale = "activation_scale",
     .kept_key = "modules_to_not_convert",
     .takes = {true, false, true},
     .groups = {},
     .source =
         "transformers 5.23.0, integrations/finegrained_fp8.py and utils/quantization_config.py"},
    {.name = "deepseek",
     .family = LayoutFamily::fp8,
     .method = "fp8",
     .codes = "weight",
     .scale = "weight_scale_inv",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {false, false, true},
     .groups = {},
     .source = "DeepSeek-V3, README_WEIGHTS.md and config.json"},
    {.name = "torchao",
     .family = LayoutFamily::torchao,
     .method = "torchao",
     .codes = "_weight_qdata",
     .scale = "_weight_scale",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {true, true, false},
     .groups = kTorchaoGroups,
     .source =
         "torchao 0.18.0, prototype/safetensors/safetensors_support.py and "
         "prototype/mx_formats/inference_workflow.py; transformers 5.23.0, integrations/torchao.py",
     .scalar_dimensions = 2,
     .row_dimensions = 2,
     .e8m0_type = ElementType::e8m0fnu},
    {.name = "gpt-oss",
     .family = LayoutFamily::gpt_oss,
     .method = "mxfp4",
     .codes = "_blocks",
     .scale = "_scales",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {false, false, false},
     .groups = kMxfp4Groups,
     .source = "transformers 5.23.0, integrations/mxfp4.py and models/gpt_oss/modeling_gpt_oss.py"},
    {.name = "deepseek-v4",
     .family = LayoutFamily::fp8,
     .method = "fp8",
     .codes = "weight",
     .scale = "scale",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {false, false, true},
     .groups = kMxfp4Groups,
     .source = "DeepSeek-V4, config.json and inference/convert.py",
     .e8m0_type = ElementType::e8m0fnu,
     .packed_type = ElementType::i8,
     .blocks_are_e8m0 = true,
     .mixes_schemes = true},
    {.name = "autofp8",
     .family = LayoutFamily::fp8,
     .method = "fp8",
     .codes = "weight",
     .scale = "weight_scale",
     .input_scale = "input_scale",
     .kept_key = "ignored_layers",
     .takes = {true, false, false},
     .groups = {},
     .source = "vLLM, model_executor/layers/quantization/fp8.py (files of AutoFP8)",
     .scalar_dimensions = 1},
    {.name = "fbgemm",
     .family = LayoutFamily::fp8,
     .method = "fbgemm_fp8",
     .codes = "weight",
     .scale = "weight_scale",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {false, true, false},
     .groups = {},
     .source = "transformers 5.23.0, integrations/fbgemm_fp8.py",
     .row_dimensions = 2},
    {.name = "mxfp8",
     .family = LayoutFamily::fp8,
     .method = "mxfp8",
     .codes = "weight",
     .scale = "weight_scale_inv",
     .input_scale = "",
     .kept_key = "modules_to_not_convert",
     .takes = {false, false, false},
     .groups = kMxfp8Groups,
     .source = "MiniMax-M3, config.json and tensors"},
}};

/// Modules that look words up rather than multiply: no layout has a scale there that is read.
constexpr std::array<std::string_view, 3> kEmbeddings{"embed", "wte", "wpe"};

/// Of names that systems and this project give to scales.
constexpr std::array<std::string_view, 5> kScaleEndings{"_scale", "_scale_inv", ".scale",
                                                        ".scale_inv", ".scale_inv_e8m0"};

bool is_embedding(std::string_view module) {
  // T5's embedding, and the one that its attention looks positions up in.
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  if (leaf == "shared" || leaf == "relative_attention_bias") return true;
  std::string lower(module);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kEmbeddings.begin(), kEmbeddings.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

/// Why elements of a type are not quantized; empty where they are.
std::string type_fault(ElementType type) {
  if (is_float_of_32_bits_or_fewer(type)) return {};
  const std::optional<FormatId> id = format_of(type);
  if (id && format(*id).storage_bits == 8) return fmt::format("{} already", to_string(type));
  return fmt::format("{} elements, not f32, f16 or bf16", to_string(type));
}

/// Why a loader would misread a weight in blocks; empty where it does not.
std::string block_fault(const Layout& layout, const WeightScheme& scheme, std::int64_t rows,
                        std::int64_t k) {
  if (scheme.tiles == WeightTiles::group && k % scheme.k_block != 0)
    return fmt::format("{} is not a multiple of the group's {}", k, scheme.k_block);
  // torchao refuses other rows of NVFP4.
  if (scheme.scales == ScaleKind::two_level && layout.family == LayoutFamily::torchao &&
      rows % scheme.k_block != 0)
    return fmt::format("{} rows are not a multiple of {}", rows, scheme.k_block);
  if (scheme.tiles != WeightTiles::block) return {};
  if (layout.name == "compressed-tensors" && k % scheme.k_block != 0)
    return fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
  if (layout.name != "hf-fp8") return {};
  // transformers takes rows / scale rows as the block where it dequantizes.
  const auto ragged = [](std::int64_t size, std::int64_t block) {
    return size > block && size % block != 0;
  };
  if (ragged(rows, scheme.row_block))
    return fmt::format("{} is not a multiple of the block's {}", rows, scheme.row_block);
  if (ragged(k, scheme.k_block))
    return fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
  return {};
}

/// gpt-oss has fused experts in MXFP4 and nothing else: [experts, k, rows].
LayerDecision decide_experts(const LayerRule& rule, const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  const bool is_expert =
      tensor.name.ends_with(".experts.gate_up_proj") || tensor.name.ends_with(".experts.down_proj");
  if (!is_expert || tensor.shape.size() != 3) return {false, "not the fused experts of a layer"};
  const std::array<std::int64_t, 2> matrix{tensor.shape[2], tensor.shape[1]};
  LayerDecision decision = decide(rule, tensor.name + ".weight", matrix);
  if (!decision.converts) return decision;
  if (element_count(tensor.shape, tensor.name) == 0) return {false, "no elements"};
  if (tensor.shape[1] % 32 != 0)
    return {false, fmt::format("{} is not a multiple of the group's 32", tensor.shape[1])};
  return {true, ""};
}

/// Experts [experts, n, k] whose blocks have a scale. Blocks are square, so that it does not matter
/// which of n and k is the input.
LayerDecision decide_fused(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                           const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  const std::array<std::int64_t, 2> matrix{tensor.shape[1], tensor.shape[2]};
  LayerDecision decision = decide(rule, tensor.name + ".weight", matrix);
  if (!decision.converts) return decision;
  if (element_count(tensor.shape, tensor.name) == 0) return {false, "no elements"};
  const std::string block = block_fault(layout, scheme, matrix[0], matrix[1]);
  return {block.empty(), block};
}

}  // namespace

std::string_view to_string(WeightTiles tiles) {
  return kTileNames[static_cast<std::size_t>(tiles)];
}

std::string_view to_string(InputScheme input) {
  return kInputNames[static_cast<std::size_t>(input)];
}

std::span<const Layout> layouts() { return kLayouts; }

const Layout& find_layout(std::string_view name) { return find_named(kLayouts, "layout", name); }

WeightNames weight_names(const Layout& layout, const WeightScheme& scheme) {
  WeightNames names{layout.codes, layout.scale, "", layout.input_scale};
  const bool two_level = scheme.scales == ScaleKind::two_level;
  switch (layout.family) {
    case LayoutFamily::compressed_tensors:
      if (scheme.format != FormatId::e4m3fn) names.codes = "weight_packed";
      if (two_level) names.tensor_scale = "weight_global_scale";
      if (two_level) names.input_scale = "input_global_scale";
      break;
    case LayoutFamily::modelopt:
      if (two_level) names.tensor_scale = "weight_scale_2";
      break;
    case LayoutFamily::torchao:
      if (two_level) names.tensor_scale = "_weight_per_tensor_scale";
      break;
    case LayoutFamily::fp8:
    case LayoutFamily::gpt_oss:
      break;
  }
  return names;
}

std::vector<std::int64_t> scale_shape(const Layout& layout, const WeightScheme& scheme,
                                      std::int64_t rows, std::int64_t k) {
  const auto blocks = [](std::int64_t size, std::int64_t block) {
    return (size + block - 1) / block;
  };
  if (scheme.tiles == WeightTiles::group) {
    const std::int64_t columns = blocks(k, scheme.k_block);
    if (layout.family == LayoutFamily::torchao) return blocked_shape(rows, columns);
    return {rows, columns};
  }
  if (scheme.tiles == WeightTiles::block) {
    const std::int64_t down = blocks(rows, scheme.row_block);
    const std::int64_t across = blocks(k, scheme.k_block);
    if (layout.spreads_blocks) return {down, 1, across, 1};
    return {down, across};
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(layout.scalar_dimensions), 1);
  if (scheme.tiles != WeightTiles::row) return shape;
  shape.assign(static_cast<std::size_t>(layout.row_dimensions), 1);
  shape[0] = rows;
  return shape;
}

bool is_fused_expert(const Layout& layout, const WeightScheme& scheme, const TensorSpec& tensor) {
  const bool has_blocks = (layout.name == "hf-fp8" || layout.name == "deepseek") &&
                          scheme.tiles == WeightTiles::block && scheme.row_block == scheme.k_block;
  return has_blocks && tensor.shape.size() == 3 && tensor.name.ends_with("_proj") &&
         tensor.name.find(".experts.") != std::string::npos;
}

std::string_view module_of(std::string_view tensor) {
  return tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size())
                                   : std::string_view();
}

LayerDecision decide(const LayerRule& rule, const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  return decide(rule, tensor.name, tensor.shape);
}

LayerDecision decide_by_shape(const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  if (tensor.shape.size() < 2)
    return {false, fmt::format("{} dimensions, not a matrix", tensor.shape.size())};
  const bool convolution = tensor.shape.size() > 2 && !module_of(tensor.name).empty();
  if (convolution)
    return {false,
            fmt::format("a weight of {} dimensions, as of a convolution", tensor.shape.size())};
  for (const std::string_view ending : kScaleEndings)
    if (tensor.name.ends_with(ending)) return {false, "the scales of another tensor"};
  return {true, ""};
}

LayerDecision decide(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                     const TensorSpec& tensor) {
  if (layout.family == LayoutFamily::gpt_oss) return decide_experts(rule, tensor);
  if (is_fused_expert(layout, scheme, tensor)) return decide_fused(rule, layout, scheme, tensor);
  LayerDecision decision = decide(rule, tensor);
  if (!decision.converts) return decision;
  if (is_embedding(module_of(tensor.name)))
    return {false, fmt::format("an embedding, for which {} has no scales", layout.name)};
  if (tensor.shape[0] == 0 || tensor.shape[1] == 0) return {false, "no elements"};
  const bool is_expert = tensor.name.find(".experts.") != std::string::npos;
  // transformers fuses experts into one parameter, which torchao's tensors cannot become.
  if (layout.family == LayoutFamily::torchao && is_expert)
    return {false, "an expert, which torchao's loaders take in floats"};
  if (layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group && !is_expert)
    return {false, fmt::format("not an expert, and {} has FP4 for experts alone", layout.name)};
  const std::string fault = block_fault(layout, scheme, tensor.shape[0], tensor.shape[1]);
  return {fault.empty(), fault};
}

}  // namespace fp8lab
