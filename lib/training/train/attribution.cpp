#include "training/train/attribution.hpp"

#include <algorithm>
#include <array>

namespace fp8lab::train {
namespace {

constexpr std::array<RunPart, 5> kParts{RunPart::forward, RunPart::dgrad, RunPart::wgrad,
                                        RunPart::sums, RunPart::states};
constexpr std::array<std::string_view, 5> kPartNames{"forward", "dgrad", "wgrad", "sums", "states"};

std::vector<LinearRecipe*> recipes_of(TrainerOptions& options) {
  std::vector<LinearRecipe*> all{&options.recipe.blocks, &options.recipe.head};
  for (auto& [layer, recipe] : options.recipe.layers) all.push_back(&recipe);
  return all;
}

GemmSettings& product_of(LinearRecipe& recipe, RunPart part) {
  if (part == RunPart::forward) return recipe.forward;
  return part == RunPart::dgrad ? recipe.dgrad : recipe.wgrad;
}

bool is_product(RunPart part) {
  return part == RunPart::forward || part == RunPart::dgrad || part == RunPart::wgrad;
}

bool is_fp8(const GemmSettings& product) { return product.arithmetic == Arithmetic::fp8; }

/// In BF16 where it is FP8; products that are not stay as they are.
void raise_product(LinearRecipe& recipe, RunPart part) {
  GemmSettings& product = product_of(recipe, part);
  if (!is_fp8(product)) return;
  LinearRecipe high = bf16_recipe();
  product = product_of(high, part);
}

void raise_states(AdamWOptions& optimizer) {
  optimizer.master = {};
  optimizer.gradient = {};
  optimizer.m = {};
  optimizer.v = {};
}

void raise_products(TrainerOptions& options) {
  for (LinearRecipe* recipe : recipes_of(options))
    for (const RunPart part : {RunPart::forward, RunPart::dgrad, RunPart::wgrad})
      raise_product(*recipe, part);
}

}  // namespace

std::string_view to_string(RunPart part) { return kPartNames[static_cast<std::size_t>(part)]; }

TrainerOptions in_high_precision(TrainerOptions options) {
  raise_products(options);
  raise_states(options.optimizer);
  options.loss_scale = 1.0;
  return options;
}

std::vector<RunPart> parts_of(const TrainerOptions& options) {
  TrainerOptions copy = options;
  const std::vector<LinearRecipe*> recipes = recipes_of(copy);
  const auto has = [&](RunPart part) {
    return std::ranges::any_of(recipes,
                               [&](LinearRecipe* r) { return is_fp8(product_of(*r, part)); });
  };
  const AdamWOptions& o = options.optimizer;
  const StateFormat f32{};
  const bool states = !(o.master == f32 && o.gradient == f32 && o.m == f32 && o.v == f32);
  std::vector<RunPart> parts;
  for (const RunPart part : {RunPart::forward, RunPart::dgrad, RunPart::wgrad})
    if (has(part)) parts.push_back(part);
  if (!parts.empty()) parts.push_back(RunPart::sums);
  if (states) parts.push_back(RunPart::states);
  return parts;
}

std::optional<TrainerOptions> with_part_alone(const TrainerOptions& options, RunPart part) {
  if (part == RunPart::sums) return std::nullopt;
  TrainerOptions alone = options;
  for (LinearRecipe* recipe : recipes_of(alone))
    for (const RunPart other : kParts)
      if (is_product(other) && other != part) raise_product(*recipe, other);
  if (part != RunPart::states) raise_states(alone.optimizer);
  return alone;
}

TrainerOptions without_part(TrainerOptions options, RunPart part) {
  if (part == RunPart::states) raise_states(options.optimizer);
  for (LinearRecipe* recipe : recipes_of(options)) {
    if (is_product(part)) raise_product(*recipe, part);
    if (part != RunPart::sums) continue;
    for (const RunPart product : {RunPart::forward, RunPart::dgrad, RunPart::wgrad})
      if (is_fp8(product_of(*recipe, product)))
        product_of(*recipe, product) =
            on_hardware(product_of(*recipe, product), recipe->activation, "exact");
  }
  return options;
}

}  // namespace fp8lab::train
