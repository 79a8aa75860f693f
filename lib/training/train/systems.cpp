#include "training/train/systems.hpp"

#include <algorithm>
#include <vector>

#include "fp8lab/core/names.hpp"
#include "training/optim/presets.hpp"

namespace fp8lab::train {
namespace {

/// The formats of a preset's states; gradients are as the all-reduce leaves them.
AdamWOptions states(std::string_view preset) {
  AdamWOptions options = find_optimizer_preset(preset).options;
  options.gradient = {};
  return options;
}

ReductionOptions fp8_wires(GradientScaling scaling) {
  ReductionOptions options;
  options.wire = find_wire_format("e4m3fn");
  options.scaling = scaling;
  return options;
}

ReductionOptions fp32_wires() {
  ReductionOptions options;
  options.wire = find_wire_format("f32");
  return options;
}

std::vector<TrainingSystem> make_systems() {
  const TrainingSystem whole{"fp8-lm",
                             "FP8 products, gradients, states, and whole-tensor ZeRO",
                             find_linear_recipe("ms-amp"),
                             states("fp8-lm"),
                             fp8_wires(GradientScaling::automatic),
                             true};
  std::vector<TrainingSystem> all{
      {"bf16-fp32",
       "BF16 products, FP32 AdamW, FP32 gradients",
       bf16_recipe(),
       {},
       fp32_wires(),
       false},
      {"fp32", "FP32 products, AdamW and gradients", fp32_recipe(), {}, fp32_wires(), false},
      whole};
  const auto but = [&](std::string_view name, std::string_view what, auto change) {
    TrainingSystem system = whole;
    system.name = name;
    system.what = what;
    change(system);
    all.push_back(std::move(system));
  };
  but("fp8-lm-bf16-products", "fp8-lm, products in BF16",
      [](TrainingSystem& s) { s.blocks = bf16_recipe(); });
  but("fp8-lm-fp32-states", "fp8-lm, FP32 AdamW", [](TrainingSystem& s) { s.optimizer = {}; });
  but("fp8-lm-fp32-gradients", "fp8-lm, gradients summed in FP32",
      [](TrainingSystem& s) { s.reduction = fp32_wires(); });
  but("fp8-lm-pre-scaling", "fp8-lm, gradients divided by N before the sum",
      [](TrainingSystem& s) { s.reduction = fp8_wires(GradientScaling::pre); });
  but("fp8-lm-post-scaling", "fp8-lm, gradients divided by N after the sum",
      [](TrainingSystem& s) { s.reduction = fp8_wires(GradientScaling::post); });
  but("fp8-lm-fp8-v", "fp8-lm, v in E4M3",
      [](TrainingSystem& s) { s.optimizer = states("fp8-lm-fp8-v"); });
  but("fp8-lm-fp8-master", "fp8-lm, master weights in E4M3",
      [](TrainingSystem& s) { s.optimizer = states("fp8-lm-fp8-master"); });
  but("fp8-lm-unscaled-states", "fp8-lm, states without tensor scales",
      [](TrainingSystem& s) { s.optimizer = states("fp8-lm-unscaled"); });
  return all;
}

}  // namespace

std::span<const TrainingSystem> training_systems() {
  static const std::vector<TrainingSystem> kSystems = make_systems();
  return kSystems;
}

const TrainingSystem* training_system(std::string_view name) {
  const auto systems = training_systems();
  const auto found = std::find_if(systems.begin(), systems.end(),
                                  [&](const TrainingSystem& s) { return s.name == name; });
  return found == systems.end() ? nullptr : &*found;
}

const TrainingSystem& find_training_system(std::string_view name, std::string_view argument) {
  return find_named(training_systems(), argument, name);
}

LinearRecipe with_products(LinearRecipe recipe, const ProductRecipes& products) {
  Recipe weight = recipe.weight_for_dgrad.value_or(recipe.weight);
  Recipe activation = recipe.activation_for_wgrad.value_or(recipe.activation);
  Recipe gradient = recipe.gradient_for_wgrad.value_or(recipe.gradient);
  const bool forward = !products.forward.empty();
  const bool dgrad = !products.dgrad.empty();
  const bool wgrad = !products.wgrad.empty();
  if (forward) {
    const LinearRecipe other = find_linear_recipe(products.forward);
    recipe.activation = other.activation;
    recipe.weight = other.weight;
    recipe.forward = other.forward;
  }
  if (dgrad) {
    const LinearRecipe other = find_linear_recipe(products.dgrad);
    recipe.gradient = other.gradient;
    weight = other.weight_for_dgrad.value_or(other.weight);
    recipe.dgrad = other.dgrad;
  }
  if (wgrad) {
    const LinearRecipe other = find_linear_recipe(products.wgrad);
    gradient = other.gradient_for_wgrad.value_or(other.gradient);
    activation = other.activation_for_wgrad.value_or(other.activation);
    recipe.wgrad = other.wgrad;
  }
  if (forward || dgrad) recipe.weight_for_dgrad = weight;
  if (forward || wgrad) recipe.activation_for_wgrad = activation;
  if (dgrad || wgrad) recipe.gradient_for_wgrad = gradient;
  return recipe;
}

}  // namespace fp8lab::train
