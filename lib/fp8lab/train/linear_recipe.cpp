#include "fp8lab/train/linear_recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab::train {
namespace {

constexpr std::array<std::string_view, 3> kArithmetics{"fp32", "bf16", "fp8"};
constexpr std::int64_t kSplitAccumulation = 128;
constexpr std::int64_t kMxBlock = 32;

struct Chip {
  std::string_view name;
  std::string_view model;
};
constexpr std::array<Chip, 3> kChips{
    {{"sm89", "sm89.mma.e4m3"}, {"sm90", "sm90.wgmma.e4m3"}, {"sm100", "sm100.tcgen05.e4m3"}}};

GemmSettings on(Arithmetic arithmetic, std::string_view model, std::int64_t promotion) {
  return {arithmetic, find_instruction_model(model).accumulator, promotion};
}

GemmSettings bf16_product() { return on(Arithmetic::bf16, "fp32", 0); }

/// The block-scaled instruction of a preset's elements; empty where they are FP8.
std::string_view block_scaled_model(const Preset& preset) {
  switch (preset.activation.format) {
    case FormatId::e2m1:
      return "sm100.tcgen05.mxf4nvf4";
    case FormatId::e2m3:
      return "sm100.tcgen05.mxf8f6f4.e2m3";
    case FormatId::e3m2:
      return "sm100.tcgen05.mxf8f6f4.e3m2";
    default:
      return {};
  }
}

LinearRecipe from_preset(const Preset& preset) {
  LinearRecipe r{.name = std::string(preset.name),
                 .activation = preset.activation,
                 .weight = preset.weight,
                 .gradient = preset.gradient,
                 .weight_for_dgrad = preset.weight_for_dgrad,
                 .activation_for_wgrad = preset.activation_for_wgrad,
                 .gradient_for_wgrad = preset.gradient_for_wgrad};
  r.bf16_outputs = true;
  if (const std::string_view scaled = block_scaled_model(preset); !scaled.empty()) {
    r.forward = r.dgrad = r.wgrad = on(Arithmetic::fp8, scaled, 0);
    return r;
  }
  const std::int64_t block = preset.activation.k_block;
  const std::string_view model = block == kMxBlock ? "sm100.tcgen05.e4m3" : "sm90.wgmma.e4m3";
  const std::int64_t backward = block == 0 ? kSplitAccumulation : block;
  r.forward = on(Arithmetic::fp8, model, block);
  r.dgrad = on(Arithmetic::fp8, model, backward);
  r.wgrad = preset.high_precision_wgrad ? bf16_product() : r.dgrad;
  return r;
}

}  // namespace

std::string_view to_string(Arithmetic arithmetic) {
  return kArithmetics[static_cast<std::size_t>(arithmetic)];
}

Arithmetic find_arithmetic(std::string_view name) {
  return find_enumerator<Arithmetic>(kArithmetics, "arithmetic", name);
}

LinearRecipe on_hardware(LinearRecipe recipe, std::string_view hardware) {
  const auto* chip =
      std::find_if(kChips.begin(), kChips.end(), [&](const Chip& c) { return c.name == hardware; });
  const AccumulatorModel& model =
      find_instruction_model(chip == kChips.end() ? hardware : chip->model).accumulator;
  for (GemmSettings* product : {&recipe.forward, &recipe.dgrad, &recipe.wgrad}) {
    if (product->arithmetic != Arithmetic::fp8) continue;
    // Scales inside the instruction need no promotion.
    if (traits_of(model).takes_scales) product->promotion_interval = 0;
    require(product->promotion_interval % model.terms == 0, "hardware",
            fmt::format("a model whose terms divide the promotion interval of {}",
                        product->promotion_interval),
            fmt::format("'{}' with {} terms", hardware, model.terms));
    product->accumulator = model;
  }
  return recipe;
}

LinearRecipe fp32_recipe() { return {}; }

LinearRecipe bf16_recipe() {
  LinearRecipe r{.name = "bf16"};
  r.forward = r.dgrad = r.wgrad = bf16_product();
  r.bf16_outputs = true;
  return r;
}

LinearRecipe find_linear_recipe(std::string_view name) {
  if (name == "fp32") return fp32_recipe();
  if (name == "bf16") return bf16_recipe();
  return from_preset(find_preset(name));
}

std::vector<std::string> linear_recipe_names() {
  std::vector<std::string> names{"fp32", "bf16"};
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

LinearRecipe fp8_recipe(std::string name, const Recipe& activation, const Recipe& weight,
                        const Recipe& gradient, std::int64_t promotion_interval) {
  LinearRecipe r{
      .name = std::move(name), .activation = activation, .weight = weight, .gradient = gradient};
  r.forward = r.dgrad = r.wgrad = on(Arithmetic::fp8, "sm90.wgmma.e4m3", promotion_interval);
  r.bf16_outputs = true;
  return r;
}

}  // namespace fp8lab::train
