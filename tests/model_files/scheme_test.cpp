// What every layout makes of weights and of inputs in each kind of tiles, presets or not, against
// a list of the pairs that its readers know.

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "message_of.hpp"
#include "training/model_files/layout.hpp"

using namespace fp8lab;

namespace {

constexpr std::array<std::string_view, 6> kSchemeLayouts{
    "compressed-tensors", "modelopt", "hf-fp8", "deepseek", "torchao", "gpt-oss"};

/// Tiles of a recipe by name.
struct NamedTiles {
  std::string_view name;
  std::int64_t rows;
  std::int64_t columns;
};
constexpr std::array<NamedTiles, 3> kWeightTiles{
    {{"tensor", 0, 0}, {"row", 1, 0}, {"block 64 x 96", 64, 96}}};
/// Parts of 96 elements are those of the weights' blocks.
constexpr std::array<NamedTiles, 8> kInputTiles{{{"tensor", 0, 0},
                                                 {"token", 1, 0},
                                                 {"group of 96", 1, 96},
                                                 {"group of 64", 1, 64},
                                                 {"calibrated", 0, 0},
                                                 {"momentum", 0, 0},
                                                 {"delayed", 0, 0},
                                                 {"block 2 x 96", 2, 96}}};

Preset preset_of(const NamedTiles& weight, const NamedTiles& input) {
  Preset preset;
  preset.name = "own";
  preset.weight.row_block = weight.rows;
  preset.weight.k_block = weight.columns;
  preset.activation.row_block = input.rows;
  preset.activation.k_block = input.columns;
  if (input.name == "calibrated") preset.activation.source = ScaleSource::calibration;
  if (input.name == "momentum") preset.activation.source = ScaleSource::momentum;
  if (input.name == "delayed") preset.activation.source = ScaleSource::delayed;
  return preset;
}

/// Weights that a layout has scales for.
std::string_view weights_of(std::string_view layout) {
  if (layout == "compressed-tensors" || layout == "modelopt") return "tensor or row or block";
  if (layout == "torchao") return "tensor or row";
  if (layout == "hf-fp8") return "tensor or block";
  return layout == "deepseek" ? "block" : "group (e2m1 with E8M0 scales)";
}

/// What a layout that takes the weights wants of inputs; nothing where it takes any.
std::string wanted_inputs(std::string_view layout, std::string_view weight) {
  const bool tensor = weight == "tensor";
  if (layout == "compressed-tensors") return "";
  if (layout == "modelopt")
    return tensor ? "one calibrated scale (recipe modelopt)" : "one scale per row";
  if (layout == "torchao") return tensor ? "one scale per tensor" : "one scale per row";
  return tensor ? "one scale" : "one scale for the part of a row that a block covers";
}

bool takes_inputs(std::string_view layout, std::string_view weight, std::string_view input) {
  const bool calibrated = input == "calibrated" || input == "momentum";
  if (layout == "compressed-tensors") return true;
  if (weight == "row") return input == "token";
  if (weight != "tensor") return input == "group of 96";
  if (layout == "modelopt") return calibrated;
  return input == "tensor" || (calibrated && layout == "hf-fp8");
}

std::string expected_of_plain(std::string_view layout, const NamedTiles& weight,
                              const NamedTiles& input, bool samples) {
  const std::string in_layout = fmt::format("in layout {}", layout);
  if (weights_of(layout).find(weight.name.substr(0, weight.name.find(' '))) ==
      std::string_view::npos)
    return fmt::format("recipe own {}: expected weights with one scale per {}, got {}", in_layout,
                       weights_of(layout), weight.name);
  if (layout == "modelopt" && weight.name.starts_with("block"))
    return fmt::format("recipe own {}: expected blocks of 128 x 128, got {}", in_layout,
                       weight.name);
  if (input.name == "delayed")
    return "recipe own: expected inputs that are cast with their own scale or a calibrated one, "
           "got a scale that is delayed";
  if (input.name.starts_with("block"))
    return fmt::format(
        "recipe own: expected inputs with a scale for each tensor, row or part of a row, got {}",
        input.name);
  if (!takes_inputs(layout, weight.name, input.name))
    return fmt::format("recipe own's inputs {}: expected {}, got another scheme", in_layout,
                       wanted_inputs(layout, weight.name));
  const bool calibrated = input.name == "calibrated" || input.name == "momentum";
  if (calibrated && !samples)
    return "`calibration`: expected samples of inputs, for recipe own, got none";
  if (samples && !calibrated)
    return fmt::format(
        "`calibration`: expected a recipe whose input scale is calibrated, not own {}, got a file",
        in_layout);
  const std::string_view scheme =
      calibrated ? "calibrated" : input.name.substr(0, input.name.find(' '));
  return fmt::format("{} {}x{}, {} of {}", weight.name.substr(0, weight.name.find(' ')),
                     weight.rows, weight.columns, scheme, input.columns);
}

std::string scheme_or_refusal(std::string_view layout, const Preset& preset, bool samples) {
  WeightScheme scheme;
  const std::string said =
      test::message_of([&] { scheme = make_scheme(find_layout(layout), preset, samples); });
  if (said != "accepted") return said;
  return fmt::format("{} {}x{}, {} of {}", to_string(scheme.tiles), scheme.row_block,
                     scheme.k_block, to_string(scheme.input), scheme.input_group);
}

// Groups.

struct NamedGroups {
  std::string_view name;
  FormatId format;
  ScaleRule rule;
  std::int64_t size;
  std::string_view kind;  ///< as a layout describes it
};
constexpr std::array<NamedGroups, 5> kGroups{
    {{"MXFP8", FormatId::e4m3fn, ScaleRule::mx_rceil, 32, "e4m3fn with E8M0 scales"},
     {"MXFP6", FormatId::e2m3, ScaleRule::mx_floor, 32, "e2m3 with E8M0 scales"},
     {"MXFP4", FormatId::e2m1, ScaleRule::mx_even, 32, "e2m1 with E8M0 scales"},
     {"NVFP4", FormatId::e2m1, ScaleRule::nvfp4, 16, "e2m1 with E4M3 and FP32 scales"},
     {"MXFP8 of E5M2", FormatId::e5m2, ScaleRule::mx_floor, 32, "e5m2 with E8M0 scales"}}};

std::string_view groups_of(std::string_view layout) {
  if (layout == "compressed-tensors")
    return "e4m3fn with E8M0 scales, e2m3 with E8M0 scales, e2m1 with E8M0 scales, e2m1 with E4M3 "
           "and FP32 scales";
  if (layout == "modelopt" || layout == "torchao")
    return "e4m3fn with E8M0 scales, e2m1 with E8M0 scales, e2m1 with E4M3 and FP32 scales";
  return layout == "gpt-oss" ? "e2m1 with E8M0 scales" : "";
}

void set_groups(Recipe& recipe, const NamedGroups& groups) {
  recipe.format = groups.format;
  recipe.rule = groups.rule;
  recipe.row_block = 1;
  recipe.k_block = groups.size;
}

std::string expected_of_groups(std::string_view layout, const NamedGroups& weight,
                               const NamedGroups& input, bool samples) {
  const std::string in_layout = fmt::format("in layout {}", layout);
  const std::string_view kinds = groups_of(layout);
  if (kinds.empty())
    return fmt::format("recipe own {}: expected FP32 or BF16 scales, got {}", in_layout,
                       to_string(weight.rule));
  if (kinds.find(weight.kind) == std::string_view::npos)
    return fmt::format(
        "recipe own {}: expected {}, in groups of elements of a row, got {} in tiles of 1 x {}",
        in_layout, kinds, format(weight.format).name, weight.size);
  const bool six = weight.name == "MXFP6";
  std::string_view scheme = "group";
  if (layout == "gpt-oss" || (six && input.name == "MXFP6")) {
    scheme = "stays";
  } else if (input.name != (six ? "MXFP8" : weight.name)) {
    return fmt::format("recipe own's inputs {}: expected those of the weights, got {}", in_layout,
                       format(input.format).name);
  } else if (weight.name == "NVFP4") {
    scheme = layout == "torchao" ? "two_level" : samples ? "calibrated" : "stays";
  }
  if (samples && scheme != "calibrated")
    return fmt::format(
        "`calibration`: expected a recipe whose input scale is calibrated, not own {}, got a file",
        in_layout);
  return fmt::format("group 1x{}, {} of {}", weight.size, scheme, input.size);
}

}  // namespace

TEST_CASE("weights and inputs in all tiles meet in every layout as its readers know them",
          "[model_files]") {
  int accepted = 0;
  for (const std::string_view layout : kSchemeLayouts)
    for (const NamedTiles& weight : kWeightTiles)
      for (const NamedTiles& input : kInputTiles)
        for (const bool samples : {false, true}) {
          INFO(layout << ": " << weight.name << ", inputs: " << input.name << ", samples "
                      << samples);
          const std::string expected = expected_of_plain(layout, weight, input, samples);
          accepted += expected.find("expected") == std::string::npos ? 1 : 0;
          CHECK(scheme_or_refusal(layout, preset_of(weight, input), samples) == expected);
        }
  CHECK(accepted == 28);
}

TEST_CASE("weights and inputs in groups meet in every layout as its readers know them",
          "[model_files]") {
  for (const std::string_view layout : kSchemeLayouts)
    for (const NamedGroups& weight : kGroups)
      for (const NamedGroups& input : kGroups)
        for (const bool samples : {false, true}) {
          INFO(layout << ": " << weight.name << ", inputs: " << input.name << ", samples "
                      << samples);
          Preset preset;
          preset.name = "own";
          set_groups(preset.weight, weight);
          set_groups(preset.activation, input);
          CHECK(scheme_or_refusal(layout, preset, samples) ==
                expected_of_groups(layout, weight, input, samples));
        }
}

TEST_CASE("types of scales and torchao's modes follow from a recipe's rule", "[model_files]") {
  using enum ScaleRule;
  Preset preset;
  preset.name = "own";
  // Weights with a scale a row.
  preset.weight.row_block = preset.activation.row_block = 1;
  for (const ScaleRule rule : {te, quotient, quotient_bf16, scale_bf16, quotient_eps_bf16,
                               fp32_scale_bf16, quotient_or_one, vllm_tensor})
    for (const std::string_view layout : {"compressed-tensors", "modelopt", "torchao"})
      for (const bool power_of_two : {false, true}) {
        INFO(layout << " " << to_string(rule));
        preset.weight.rule = rule;
        preset.weight.power_of_two = power_of_two;
        const WeightScheme scheme = make_scheme(find_layout(layout), preset, false);
        const bool bf16 = rule == quotient_bf16 || rule == scale_bf16 || rule == quotient_eps_bf16;
        const ElementType type =
            bf16 && layout == "compressed-tensors" ? ElementType::bf16 : ElementType::f32;
        CHECK(scheme.scale_type == type);
        CHECK(scheme.input_scale_type == type);
        CHECK(scheme.power_of_two == power_of_two);
        CHECK(scheme.scales == ScaleKind::plain);
      }
  // Groups.
  struct Mode {
    ScaleRule rule;
    std::string_view name;
  };
  for (const Mode& mode :
       {Mode{mx_floor, "FLOOR"}, Mode{torchao_mx_floor, "FLOOR"}, Mode{mx_ceil, "CEIL"},
        Mode{torchao_mx_ceil, "CEIL"}, Mode{mx_even, "EVEN"}, Mode{torchao_mx_even, "EVEN"},
        Mode{mx_rceil, "RCEIL"}, Mode{torchao_mx_rceil, "RCEIL"}, Mode{te_mx, "RCEIL"},
        Mode{compressed_mx, "RCEIL"}})
    for (const std::string_view layout : {"compressed-tensors", "modelopt", "torchao"}) {
      INFO(layout << " " << to_string(mode.rule));
      set_groups(preset.weight, kGroups[0]);
      set_groups(preset.activation, kGroups[0]);
      preset.activation.rule = mode.rule;
      const WeightScheme scheme = make_scheme(find_layout(layout), preset, false);
      CHECK(scheme.torchao_scaling == (layout == "torchao" ? mode.name : ""));
      CHECK(scheme.scale_type == (layout == "torchao" ? ElementType::e8m0fnu : ElementType::u8));
      CHECK(scheme.scales == ScaleKind::e8m0);
      CHECK(scheme.format == FormatId::e4m3fn);
      CHECK(scheme.input_format == FormatId::e4m3fn);
      set_groups(preset.weight, kGroups[3]);
      set_groups(preset.activation, kGroups[3]);
      const WeightScheme two = make_scheme(find_layout(layout), preset, false);
      CHECK(two.scale_type == ElementType::e4m3fn);
      CHECK(two.scales == ScaleKind::two_level);
      CHECK(two.input_format == FormatId::e2m1);
    }
  // What no layout says of plain scales.
  preset = {};
  preset.name = "own";
  const auto why = [&] {
    return test::message_of([&] { make_scheme(find_layout("torchao"), preset, false); });
  };
  preset.weight.format = FormatId::e5m2;
  CHECK(why() == "recipe own in layout torchao: expected E4M3 weights, got e5m2");
  preset.weight.format = FormatId::e4m3fn;
  preset.weight.rule = unit;
  CHECK(why() == "recipe own in layout torchao: expected FP32 or BF16 scales, got unit");
  preset.weight.rule = te;
  CHECK(why() == "accepted");
  for (const ScaleSource source : {ScaleSource::delayed, ScaleSource::ms_amp,
                                   ScaleSource::calibration, ScaleSource::momentum}) {
    preset.weight.source = source;
    CHECK(why() == fmt::format("recipe own in layout torchao: expected weights cast by their own "
                               "scale, got a scale that is {}",
                               to_string(source)));
  }
  preset.weight.source = ScaleSource::current;
  set_groups(preset.activation, kGroups[3]);
  CHECK(why() ==
        "recipe own's inputs in layout torchao: expected inputs with one level of "
        "scales, got two");
}
