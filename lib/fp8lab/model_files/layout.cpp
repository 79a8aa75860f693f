#include "fp8lab/model_files/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/named.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kTileNames{"tensor", "row", "block"};
constexpr std::string_view kWeight = ".weight";

constexpr std::array<Layout, 5> kLayouts{{
    {"compressed-tensors",
     LayoutFamily::compressed_tensors,
     "weight",
     "weight_scale",
     "input_scale",
     {true, true, true},
     "compressed-tensors 0.20.0, quantization/lifecycle/initialize.py and "
     "compressors/naive_quantized/base.py"},
    {"modelopt",
     LayoutFamily::modelopt,
     "weight",
     "weight_scale",
     "input_scale",
     {true, true, false},
     "nvidia-modelopt 0.47.0, torch/export/quant_utils.py, unified_export_hf.py and "
     "convert_hf_config.py"},
    {"hf-fp8",
     LayoutFamily::fp8,
     "weight",
     "weight_scale_inv",
     "activation_scale",
     {true, false, true},
     "transformers 5.23.0, integrations/finegrained_fp8.py and utils/quantization_config.py"},
    {"deepseek",
     LayoutFamily::fp8,
     "weight",
     "weight_scale_inv",
     "",
     {false, false, true},
     "DeepSeek-V3, README_WEIGHTS.md and config.json"},
    {"torchao",
     LayoutFamily::torchao,
     "_weight_qdata",
     "_weight_scale",
     "",
     {true, true, false},
     "torchao 0.18.0, prototype/safetensors/safetensors_support.py; transformers 5.23.0, "
     "integrations/torchao.py"},
}};

/// Modules that look words up rather than multiply: no layout has a scale there that is read.
constexpr std::array<std::string_view, 3> kEmbeddings{"embed", "wte", "wpe"};

/// Of names that systems and this project give to scales.
constexpr std::array<std::string_view, 5> kScaleEndings{"_scale", "_scale_inv", ".scale",
                                                        ".scale_inv", ".scale_inv_e8m0"};

bool is_embedding(std::string_view module) {
  std::string lower(module);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kEmbeddings.begin(), kEmbeddings.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

WeightTiles tiles_of(const Recipe& recipe) {
  if (recipe.row_block == 0 && recipe.k_block == 0) return WeightTiles::tensor;
  if (recipe.row_block == 1 && recipe.k_block == 0) return WeightTiles::row;
  return WeightTiles::block;
}

std::string describe_tiles(const Recipe& recipe) {
  if (tiles_of(recipe) != WeightTiles::block) return std::string(to_string(tiles_of(recipe)));
  return fmt::format("block {} x {}", recipe.row_block, recipe.k_block);
}

InputScheme input_of(const Preset& preset) {
  const Recipe& recipe = preset.activation;
  if (recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum)
    return InputScheme::calibrated;
  require(recipe.source == ScaleSource::current, fmt::format("recipe {}", preset.name),
          "inputs that are cast by their own scale or a calibrated one",
          fmt::format("a scale that is {}", to_string(recipe.source)));
  switch (tiles_of(recipe)) {
    case WeightTiles::tensor:
      return InputScheme::tensor;
    case WeightTiles::row:
      return InputScheme::token;
    case WeightTiles::block:
      break;
  }
  require(recipe.row_block == 1, fmt::format("recipe {}", preset.name),
          "inputs with a scale for each tensor, row or part of a row", describe_tiles(recipe));
  return InputScheme::group;
}

void require_tiles(const Layout& layout, const Preset& preset) {
  const Recipe& weight = preset.weight;
  const std::string argument = fmt::format("recipe {} in layout {}", preset.name, layout.name);
  std::string taken;
  for (std::size_t i = 0; i < kTileNames.size(); ++i)
    if (layout.takes[i]) taken += (taken.empty() ? "" : " or ") + std::string(kTileNames[i]);
  const WeightTiles tiles = tiles_of(weight);
  require(layout.takes[static_cast<std::size_t>(tiles)] &&
              (tiles != WeightTiles::block || (weight.row_block > 1 && weight.k_block > 1)),
          argument, "weights with a scale a " + taken, describe_tiles(weight));
  require(weight.format == FormatId::e4m3fn, argument, "E4M3 weights", format(weight.format).name);
  require(weight.source == ScaleSource::current, argument, "weights cast by their own scale",
          fmt::format("a scale that is {}", to_string(weight.source)));
  require(!is_mx(weight.rule) && weight.rule != ScaleRule::unit, argument, "FP32 or BF16 scales",
          to_string(weight.rule));
}

/// Layouts that are told by their weights how inputs are cast.
void require_input(const Layout& layout, const Preset& preset, const WeightScheme& scheme) {
  using enum InputScheme;
  const std::string argument =
      fmt::format("recipe {}'s inputs in layout {}", preset.name, layout.name);
  if (layout.family == LayoutFamily::compressed_tensors) return;
  const bool by_tensor = scheme.tiles == WeightTiles::tensor;
  if (layout.family == LayoutFamily::modelopt)
    return require(scheme.input == (by_tensor ? calibrated : token), argument,
                   by_tensor ? "one calibrated scale (recipe modelopt)" : "a scale a row",
                   "another scheme");
  if (layout.family == LayoutFamily::torchao)
    return require(scheme.input == (by_tensor ? InputScheme::tensor : token), argument,
                   by_tensor ? "a scale a tensor" : "a scale a row", "another scheme");
  const bool fits = by_tensor ? scheme.input == InputScheme::tensor || scheme.input == calibrated
                              : scheme.input == group && scheme.input_group == scheme.k_block;
  require(fits, argument, by_tensor ? "one scale" : "a scale for as much of a row as a block has",
          "another scheme");
}

bool is_float_matrix_type(ElementType type) {
  return type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16;
}

/// Why elements of a type are not quantized; empty where they are.
std::string type_fault(ElementType type) {
  if (is_float_matrix_type(type)) return {};
  const std::optional<FormatId> id = format_of(type);
  if (id && format(*id).storage_bits == 8) return fmt::format("{} already", to_string(type));
  return fmt::format("{} elements, not f32, f16 or bf16", to_string(type));
}

/// Why a loader would misread a weight in blocks; empty where it does not.
std::string block_fault(const Layout& layout, const WeightScheme& scheme, std::int64_t rows,
                        std::int64_t k) {
  if (scheme.tiles != WeightTiles::block) return {};
  if (layout.name == "compressed-tensors" && k % scheme.k_block != 0)
    return fmt::format("{} is no multiple of the block's {}", k, scheme.k_block);
  if (layout.name != "hf-fp8") return {};
  // transformers takes rows / scale rows as the block where it dequantizes.
  const auto ragged = [](std::int64_t size, std::int64_t block) {
    return size > block && size % block != 0;
  };
  if (ragged(rows, scheme.row_block))
    return fmt::format("{} is no multiple of the block's {}", rows, scheme.row_block);
  if (ragged(k, scheme.k_block))
    return fmt::format("{} is no multiple of the block's {}", k, scheme.k_block);
  return {};
}

}  // namespace

std::string_view to_string(WeightTiles tiles) {
  return kTileNames[static_cast<std::size_t>(tiles)];
}

std::span<const Layout> layouts() { return kLayouts; }

const Layout& find_layout(std::string_view name) { return find_named(kLayouts, "layout", name); }

WeightScheme make_scheme(const Layout& layout, const Preset& preset, bool calibrated) {
  require_tiles(layout, preset);
  const Recipe& weight = preset.weight;
  WeightScheme scheme{.tiles = tiles_of(weight),
                      .row_block = weight.row_block,
                      .k_block = weight.k_block,
                      .input = input_of(preset),
                      .input_group = preset.activation.k_block,
                      .power_of_two = weight.power_of_two};
  const bool has_bf16_scales =
      layout.family == LayoutFamily::compressed_tensors && takes_bf16(weight.rule);
  if (has_bf16_scales) scheme.scale_type = ElementType::bf16;
  require_input(layout, preset, scheme);
  const bool is_static = scheme.input == InputScheme::calibrated;
  require(calibrated || !is_static, "--calibration",
          fmt::format("samples of inputs, for recipe {}", preset.name), "none");
  require(is_static || !calibrated, "--calibration",
          fmt::format("a recipe whose input scale is calibrated, not {}", preset.name), "a file");
  return scheme;
}

std::vector<std::int64_t> scale_shape(const Layout& layout, const WeightScheme& scheme,
                                      std::int64_t rows, std::int64_t k) {
  const auto blocks = [](std::int64_t size, std::int64_t block) {
    return (size + block - 1) / block;
  };
  if (scheme.tiles == WeightTiles::block)
    return {blocks(rows, scheme.row_block), blocks(k, scheme.k_block)};
  const bool by_row = scheme.tiles == WeightTiles::row;
  switch (layout.family) {
    case LayoutFamily::compressed_tensors:
      return by_row ? std::vector<std::int64_t>{rows, 1} : std::vector<std::int64_t>{1};
    case LayoutFamily::torchao:
      return {by_row ? rows : 1, 1};
    case LayoutFamily::modelopt:
    case LayoutFamily::fp8:
      break;
  }
  return by_row ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{};
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
    return {false, fmt::format("{} dimensions, no matrix", tensor.shape.size())};
  const bool convolution = tensor.shape.size() > 2 && !module_of(tensor.name).empty();
  if (convolution)
    return {false, fmt::format("a weight of {} dimensions: a convolution's", tensor.shape.size())};
  for (const std::string_view ending : kScaleEndings)
    if (tensor.name.ends_with(ending)) return {false, "the scales of another tensor"};
  return {true, ""};
}

LayerDecision decide(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                     const TensorSpec& tensor) {
  const LayerDecision decision = decide(rule, tensor);
  if (!decision.converts) return decision;
  if (is_embedding(module_of(tensor.name)))
    return {false, fmt::format("an embedding, for which {} has no scales", layout.name)};
  if (tensor.shape[0] == 0 || tensor.shape[1] == 0) return {false, "no elements"};
  const std::string fault = block_fault(layout, scheme, tensor.shape[0], tensor.shape[1]);
  return {fault.empty(), fault};
}

}  // namespace fp8lab
