#include "fp8lab/linear/linear_recipe.hpp"

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

/// What libraries run FP8 products on, BF16 ones, and products of operands with scales in blocks.
struct Chip {
  std::string_view name;
  std::string_view model;
  std::string_view bf16;
  std::string_view block_scaled;      ///< without the elements' format; empty: it has none
  std::string_view block_scaled_fp4;  ///< of E2M1 on both sides
};
constexpr std::array<Chip, 4> kChips{{
    {"sm89", "sm89.mma.e4m3", "sm89.mma.bf16", "", ""},
    {"sm90", "sm90.wgmma.e4m3", "sm90.wgmma.bf16", "", ""},
    {"sm100", "sm100.tcgen05.e4m3", "sm100.tcgen05.bf16", "sm100.tcgen05.mxf8f6f4",
     "sm100.tcgen05.mxf4nvf4"},
    {"sm120", "sm120.mma.e4m3", "sm120.mma.bf16", "sm120.mma.mxf8f6f4", "sm120.mma.mxf4nvf4"},
}};

GemmSettings on(Arithmetic arithmetic, std::string_view model, std::int64_t promotion) {
  return {arithmetic, find_instruction_model(model).accumulator, promotion};
}

GemmSettings bf16_product() { return on(Arithmetic::bf16, "fp32", 0); }

const Chip* find_chip(std::string_view name) {
  const auto* chip =
      std::find_if(kChips.begin(), kChips.end(), [&](const Chip& c) { return c.name == name; });
  return chip == kChips.end() ? nullptr : chip;
}

/// An instruction or a definition, which users give as hardware.
const InstructionModel& find_hardware(std::string_view name) {
  try {
    return find_instruction_model(name);
  } catch (const Error&) {
    if (name.find_first_of(".:") != std::string_view::npos) throw;
  }
  std::string chips;
  for (const Chip& chip : kChips) chips += fmt::format("{}, ", chip.name);
  throw Error("hardware", chips + "or an instruction or definition of one",
              fmt::format("'{}'", name));
}

/// The elements' format in the name of a block-scaled instruction.
std::string_view suffix_of(FormatId format) {
  switch (format) {
    case FormatId::e4m3fn:
      return ".e4m3";
    case FormatId::e5m2:
      return ".e5m2";
    case FormatId::e2m3:
      return ".e2m3";
    case FormatId::e3m2:
      return ".e3m2";
    default:
      return ".e2m1";
  }
}

bool is_narrow(FormatId format) {
  return format == FormatId::e2m1 || format == FormatId::e2m3 || format == FormatId::e3m2;
}

/// The instruction on which a chip multiplies operands cast so.
std::string model_on(const Chip& chip, const Recipe& recipe) {
  const bool blocks = is_mx(recipe.rule) || is_two_level(recipe.rule);
  if (blocks && !chip.block_scaled.empty()) {
    if (recipe.format == FormatId::e2m1) return std::string(chip.block_scaled_fp4);
    return fmt::format("{}{}", chip.block_scaled, suffix_of(recipe.format));
  }
  require(!is_narrow(recipe.format), "hardware",
          fmt::format("sm100 or sm120, which multiply {}", format(recipe.format).name), chip.name);
  return std::string(chip.model);
}

std::array<GemmSettings*, 3> products(LinearRecipe& r) { return {&r.forward, &r.dgrad, &r.wgrad}; }

LinearRecipe from_preset(const Preset& preset) {
  LinearRecipe r{.name = std::string(preset.name),
                 .activation = preset.activation,
                 .weight = preset.weight,
                 .gradient = preset.gradient,
                 .weight_for_dgrad = preset.weight_for_dgrad,
                 .activation_for_wgrad = preset.activation_for_wgrad,
                 .gradient_for_wgrad = preset.gradient_for_wgrad};
  r.bf16_outputs = true;
  if (is_mx(preset.activation.rule) || is_two_level(preset.activation.rule)) {
    r.forward = r.dgrad = on(Arithmetic::fp8, model_on(*find_chip("sm100"), preset.activation), 0);
  } else {
    const std::int64_t block = preset.activation.k_block;
    r.forward = on(Arithmetic::fp8, "sm90.wgmma.e4m3", block);
    r.dgrad = on(Arithmetic::fp8, "sm90.wgmma.e4m3", block == 0 ? kSplitAccumulation : block);
  }
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

GemmSettings on_hardware(GemmSettings product, const Recipe& operands, std::string_view hardware) {
  const bool fp8 = product.arithmetic == Arithmetic::fp8;
  const Chip* const chip = find_chip(hardware);
  std::string name(hardware);
  if (chip != nullptr) name = fp8 ? model_on(*chip, operands) : std::string(chip->bf16);
  const AccumulatorModel& model = find_hardware(name).accumulator;
  if (product.arithmetic == Arithmetic::fp32) return product;
  if (!fp8)
    require(takes_formats(model, FormatId::bf16, FormatId::bf16), "hardware",
            "a model that takes BF16 operands", fmt::format("'{}'", hardware));
  // Scales inside the instruction need no promotion; others that change along K do.
  if (traits_of(model).takes_scales)
    product.promotion_interval = 0;
  else if (product.promotion_interval == 0 && traits_of(product.accumulator).takes_scales)
    product.promotion_interval = operands.k_block;
  require(product.promotion_interval % model.terms == 0, "hardware",
          fmt::format("a model whose terms divide the promotion interval of {}",
                      product.promotion_interval),
          fmt::format("'{}' with {} terms", hardware, model.terms));
  product.accumulator = model;
  return product;
}

bool is_for_bf16(std::string_view hardware) {
  if (find_chip(hardware) != nullptr) return false;
  const InstructionModel& model = find_hardware(hardware);
  return model.a_format == FormatId::bf16 && model.b_format == FormatId::bf16;
}

void set_bf16_accumulator(LinearRecipe& recipe, std::string_view hardware) {
  for (GemmSettings* product : products(recipe))
    if (product->arithmetic == Arithmetic::bf16)
      *product = on_hardware(*product, recipe.activation, hardware);
}

void move_to_hardware(std::span<LinearRecipe* const> recipes, std::string_view hardware) {
  const auto has = [&](Arithmetic arithmetic) {
    return std::any_of(recipes.begin(), recipes.end(), [&](LinearRecipe* recipe) {
      const auto all = products(*recipe);
      return std::any_of(all.begin(), all.end(),
                         [&](const GemmSettings* p) { return p->arithmetic == arithmetic; });
    });
  };
  const bool any_fp8 = has(Arithmetic::fp8);
  const bool any_bf16 = has(Arithmetic::bf16);
  const bool chip = find_chip(hardware) != nullptr;
  const bool for_bf16 = chip || is_for_bf16(hardware) ||
                        (!any_fp8 && find_hardware(hardware).standing == Standing::definition);
  const bool for_fp8 = chip || !for_bf16;
  require((for_fp8 && any_fp8) || (for_bf16 && any_bf16) || (!any_fp8 && !any_bf16), "hardware",
          fmt::format("a model of {} operands, as the recipe has", any_fp8 ? "FP8" : "BF16"),
          fmt::format("'{}'", hardware));
  for (LinearRecipe* recipe : recipes)
    for (GemmSettings* product : products(*recipe))
      if (product->arithmetic == Arithmetic::bf16 ? for_bf16 : for_fp8)
        *product = on_hardware(*product, recipe->activation, hardware);
}

LinearRecipe on_hardware(LinearRecipe recipe, std::string_view hardware) {
  LinearRecipe* const one[] = {&recipe};
  move_to_hardware(one, hardware);
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
