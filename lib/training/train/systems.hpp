#pragma once
// Complete training systems: their products, states and gradients on the wire.

#include <span>
#include <string>
#include <string_view>

#include "fp8lab/linear/linear_recipe.hpp"
#include "training/optim/adamw.hpp"
#include "training/train/gradient_reducer.hpp"

namespace fp8lab::train {

/// The arithmetic of a system. The user sets `reduction.ranks`.
struct TrainingSystem {
  std::string_view name;
  std::string_view what;
  LinearRecipe blocks;
  AdamWOptions optimizer;
  ReductionOptions reduction;
  bool whole_tensor_zero = false;
};

/// bf16-fp32           BF16 products, FP32 AdamW, gradients summed in FP32: the baseline of
/// FP8-LM's
///                     section 3.2.2
/// fp32                the same with FP32 products: shows the effect of rounding to BF16 fp8-lm
/// MS-AMP's FP8 products, E4M3 gradients summed under auto-scaling, master
///                     weights FP16, m E4M3, v FP16, each with a tensor scale, whole-tensor ZeRO
/// fp8-lm-PART         fp8-lm with one part replaced: bf16-products, fp32-states,
/// fp32-gradients,
///                     pre-scaling, post-scaling, fp8-v, fp8-master, unscaled-states
///
/// The optimizer reads the codes and the scale that the all-reduce gives. They are not cast a
/// second time (paper, section 2.1; *assumed* for clipping, which MS-AMP includes in the scale).
std::span<const TrainingSystem> training_systems();

/// The system called `name`, or null.
const TrainingSystem* training_system(std::string_view name);
/// The system called `name`. Throws `Error` that names `argument` and lists the names.
const TrainingSystem& find_training_system(std::string_view name, std::string_view argument);

/// The name of a linear recipe for each product of a layer; empty: the layer's own.
struct ProductRecipes {
  std::string forward;
  std::string dgrad;
  std::string wgrad;
};

/// `recipe` with these products as others run them: casts of both operands and accumulator. An
/// operand that enters a product of each is cast for both. "deepseek-v3" with dgrad and wgrad
/// "bf16" is a forward pass in FP8 and a backward pass in BF16. Throws `Error` for an unknown name.
LinearRecipe with_products(LinearRecipe recipe, const ProductRecipes& products);

}  // namespace fp8lab::train
