// Which recipes a layout can say.

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

ScaleKind scales_of(const Recipe& recipe) {
  if (is_mx(recipe.rule)) return ScaleKind::e8m0;
  return is_two_level(recipe.rule) ? ScaleKind::two_level : ScaleKind::plain;
}

WeightTiles tiles_of(const Recipe& recipe) {
  if (recipe.row_block == 0 && recipe.k_block == 0) return WeightTiles::tensor;
  if (recipe.row_block == 1 && recipe.k_block == 0) return WeightTiles::row;
  return recipe.row_block == 1 ? WeightTiles::group : WeightTiles::block;
}

std::string describe_tiles(const Recipe& recipe) {
  const WeightTiles tiles = tiles_of(recipe);
  if (tiles == WeightTiles::tensor || tiles == WeightTiles::row)
    return std::string(to_string(tiles));
  return fmt::format("block {} x {}", recipe.row_block, recipe.k_block);
}

std::string describe_groups(std::span<const GroupElements> groups) {
  std::string text;
  for (const GroupElements& group : groups)
    text += fmt::format("{}{} with {} scales", text.empty() ? "" : ", ", format(group.format).name,
                        group.scales == ScaleKind::e8m0 ? "E8M0" : "E4M3 and FP32");
  return text;
}

InputScheme input_of(const Preset& preset) {
  const Recipe& recipe = preset.activation;
  if (recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum)
    return InputScheme::calibrated;
  require(recipe.source == ScaleSource::current, fmt::format("recipe {}", preset.name),
          "inputs that are cast with their own scale or a calibrated one",
          fmt::format("a scale that is {}", to_string(recipe.source)));
  if (is_two_level(recipe.rule)) return InputScheme::two_level;
  switch (tiles_of(recipe)) {
    case WeightTiles::tensor:
      return InputScheme::tensor;
    case WeightTiles::row:
      return InputScheme::token;
    case WeightTiles::group:
      return InputScheme::group;
    case WeightTiles::block:
      break;
  }
  throw Error(fmt::format("recipe {}", preset.name),
              "inputs with a scale for each tensor, row or part of a row", describe_tiles(recipe));
}

/// Groups: MX and NVFP4.
void require_groups(const Layout& layout, const Preset& preset, const std::string& argument) {
  const Recipe& weight = preset.weight;
  const ScaleKind kind = scales_of(weight);
  const bool has = std::any_of(layout.groups.begin(), layout.groups.end(), [&](const auto& group) {
    return group.format == weight.format && group.scales == kind;
  });
  const std::int64_t size = kind == ScaleKind::e8m0 ? 32 : 16;
  require(!layout.groups.empty(), argument, "FP32 or BF16 scales", to_string(weight.rule));
  require(has && tiles_of(weight) == WeightTiles::group && weight.k_block == size, argument,
          fmt::format("{}, in groups of elements of a row", describe_groups(layout.groups)),
          fmt::format("{} in tiles of {} x {}", format(weight.format).name, weight.row_block,
                      weight.k_block));
}

void require_tiles(const Layout& layout, const Preset& preset) {
  const Recipe& weight = preset.weight;
  const std::string argument = fmt::format("recipe {} in layout {}", preset.name, layout.name);
  require(weight.source == ScaleSource::current, argument, "weights cast by their own scale",
          fmt::format("a scale that is {}", to_string(weight.source)));
  if (scales_of(weight) != ScaleKind::plain) return require_groups(layout, preset, argument);
  std::string taken;
  for (std::size_t i = 0; i < layout.takes.size(); ++i)
    if (layout.takes[i])
      taken += (taken.empty() ? "" : " or ") + std::string(to_string(static_cast<WeightTiles>(i)));
  if (taken.empty()) taken = "group (" + describe_groups(layout.groups) + ")";
  const WeightTiles tiles = tiles_of(weight);
  require(tiles != WeightTiles::group && layout.takes[static_cast<std::size_t>(tiles)] &&
              (tiles != WeightTiles::block || (weight.row_block > 1 && weight.k_block > 1)),
          argument, "weights with one scale per " + taken, describe_tiles(weight));
  require(weight.format == FormatId::e4m3fn, argument, "E4M3 weights", format(weight.format).name);
  require(weight.rule != ScaleRule::unit, argument, "FP32 or BF16 scales", to_string(weight.rule));
  const bool usual_block = weight.row_block == 128 && weight.k_block == 128;
  require(!layout.spreads_blocks || tiles != WeightTiles::block || usual_block, argument,
          "blocks of 128 x 128", describe_tiles(weight));
  require(!layout.blocks_are_e8m0 || weight.power_of_two, argument,
          "scales that are powers of two (deepgemm-ue8m0)", to_string(weight.rule));
}

/// How whoever loads groups casts inputs: as the weights, or not at all.
InputScheme group_input(const Layout& layout, const Preset& preset, bool has_samples) {
  using enum InputScheme;
  if (layout.keeps_inputs) return stays;
  const Recipe& input = preset.activation;
  // compressed-tensors has no scheme with inputs of six bits: MXFP6A8 has MXFP8 ones.
  const bool is_mxfp6 = preset.weight.format == FormatId::e2m3;
  if (is_mxfp6 && input.format == FormatId::e2m3) return stays;
  const FormatId format_of_inputs = is_mxfp6 ? FormatId::e4m3fn : preset.weight.format;
  require(input.format == format_of_inputs && input.k_block == preset.weight.k_block &&
              scales_of(input) == scales_of(preset.weight),
          fmt::format("recipe {}'s inputs in layout {}", preset.name, layout.name),
          "those of the weights", format(input.format).name);
  if (scales_of(input) == ScaleKind::e8m0) return group;
  if (layout.scales_two_level_inputs) return two_level;
  return has_samples ? InputScheme::calibrated : stays;
}

/// Layouts that are told by their weights how inputs are cast.
void require_input(const Layout& layout, const Preset& preset, const WeightScheme& scheme) {
  using enum InputScheme;
  const std::string argument =
      fmt::format("recipe {}'s inputs in layout {}", preset.name, layout.name);
  require(scheme.input != InputScheme::two_level, argument, "inputs with one level of scales",
          "two");
  layout.family->require_input(scheme, argument);
}

/// The type of a weight's scales, and of an input's.
void set_scale_types(const Layout& layout, const Recipe& weight, WeightScheme& scheme) {
  switch (scheme.scales) {
    case ScaleKind::e8m0:
      scheme.scale_type = layout.e8m0_type;
      return;
    case ScaleKind::two_level:
      scheme.scale_type = ElementType::e4m3fn;
      return;
    case ScaleKind::plain:
      break;
  }
  if (layout.blocks_are_e8m0) scheme.scale_type = ElementType::e8m0fnu;
  if (!layout.has_bf16_scales || !has_bf16_scale(weight.rule)) return;
  scheme.scale_type = ElementType::bf16;
  scheme.input_scale_type = ElementType::bf16;
}

}  // namespace

WeightScheme make_scheme_of_part(const Layout& layout, const Preset& preset, bool calibrated) {
  require_tiles(layout, preset);
  const Recipe& weight = preset.weight;
  WeightScheme scheme{.format = weight.format,
                      .scales = scales_of(weight),
                      .tiles = tiles_of(weight),
                      .row_block = weight.row_block,
                      .k_block = weight.k_block,
                      .input = input_of(preset),
                      .input_group = preset.activation.k_block,
                      .input_format = preset.activation.format,
                      .power_of_two = weight.power_of_two};
  layout.family->complete(preset, scheme);
  set_scale_types(layout, weight, scheme);
  // ModelOpt's blocks are for weights alone.
  if (layout.spreads_blocks && scheme.tiles == WeightTiles::block)
    scheme.input = InputScheme::stays;
  if (scheme.scales == ScaleKind::plain)
    require_input(layout, preset, scheme);
  else
    scheme.input = group_input(layout, preset, calibrated);
  require(calibrated || scheme.input != InputScheme::calibrated, argument("calibration"),
          fmt::format("samples of inputs, for recipe {}", preset.name), "none");
  return scheme;
}

WeightScheme make_scheme(const Layout& layout, const Preset& preset, bool calibrated) {
  WeightScheme scheme = make_scheme_of_part(layout, preset, calibrated);
  require(scheme.input == InputScheme::calibrated || !calibrated, argument("calibration"),
          fmt::format("a recipe whose input scale is calibrated, not {} in layout {}", preset.name,
                      layout.name),
          "a file");
  return scheme;
}

}  // namespace fp8lab
