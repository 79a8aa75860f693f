#include "training/model_files/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/blocked_scales.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 4> kTileNames{"tensor", "row", "block", "group"};
constexpr std::array<std::string_view, 6> kInputNames{"token",      "group",     "tensor",
                                                      "calibrated", "two_level", "stays"};
constexpr std::string_view kWeight = ".weight";

/// Of names that systems and this project give to scales.
constexpr std::array<std::string_view, 5> kScaleEndings{"_scale", "_scale_inv", ".scale",
                                                        ".scale_inv", ".scale_inv_e8m0"};

std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (const LayoutFamily* family : layout_families())
    for (Layout layout : family->layouts()) {
      layout.family = family;
      all.push_back(layout);
    }
  return all;
}

}  // namespace

std::string type_fault(ElementType type) {
  if (is_float_of_32_bits_or_fewer(type)) return {};
  const std::optional<FormatId> id = format_of(type);
  if (id && format(*id).storage_bits == 8) return fmt::format("{} already", to_string(type));
  return fmt::format("{} elements, not f32, f16 or bf16", to_string(type));
}

std::string_view to_string(WeightTiles tiles) {
  return kTileNames[static_cast<std::size_t>(tiles)];
}

std::string_view to_string(InputScheme input) {
  return kInputNames[static_cast<std::size_t>(input)];
}

std::span<const Layout> layouts() {
  static const std::vector<Layout> kLayouts = all_layouts();
  return kLayouts;
}

const Layout& find_layout(std::string_view name) { return find_named(layouts(), "layout", name); }

WeightNames weight_names(const Layout& layout, const WeightScheme& scheme) {
  WeightNames names{layout.codes, layout.scale, "", layout.input_scale};
  if (scheme.format != FormatId::e4m3fn && !layout.packed_codes.empty())
    names.codes = layout.packed_codes;
  if (scheme.scales != ScaleKind::two_level) return names;
  names.tensor_scale = layout.tensor_scale;
  if (!layout.two_level_input_scale.empty()) names.input_scale = layout.two_level_input_scale;
  return names;
}

std::vector<std::int64_t> scale_shape(const Layout& layout, const WeightScheme& scheme,
                                      std::int64_t rows, std::int64_t k) {
  if (scheme.tiles == WeightTiles::group) {
    const std::int64_t columns = ceil_divide(k, scheme.k_block);
    if (layout.for_tensor_cores) return blocked_shape(rows, columns);
    return {rows, columns};
  }
  if (scheme.tiles == WeightTiles::block) {
    const std::int64_t down = ceil_divide(rows, scheme.row_block);
    const std::int64_t across = ceil_divide(k, scheme.k_block);
    if (layout.spreads_blocks) return {down, 1, across, 1};
    return {down, across};
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(layout.scalar_dimensions), 1);
  if (scheme.tiles != WeightTiles::row) return shape;
  shape.assign(static_cast<std::size_t>(layout.row_dimensions), 1);
  shape[0] = rows;
  return shape;
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
  return layout.family->decide(rule, layout, scheme, tensor);
}

}  // namespace fp8lab
