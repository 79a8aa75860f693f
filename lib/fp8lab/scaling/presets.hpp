#pragma once
// Recipes by the names of the systems that use them.

#include <optional>
#include <span>
#include <string_view>

#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// The operand of a linear layer that a tensor is.
enum class TensorRole : std::uint8_t { activation, weight, gradient };
std::string_view to_string(TensorRole role);
TensorRole find_tensor_role(std::string_view name);

/// A product of a linear layer: Y = X W^T, dX = dY W, dW = dY^T X.
enum class LinearProduct : std::uint8_t { fprop, dgrad, wgrad };
std::string_view to_string(LinearProduct product);
/// The product called `name`. Throws `Error`.
LinearProduct find_linear_product(std::string_view name);

/// The evidence that a preset gives the bits of its system.
enum class Evidence : std::uint8_t {
  compared,  ///< the system's package and this library gave the same codes and scales
  read,      ///< read in the source of the system
  own,       ///< defined here; no system has it
};
std::string_view to_string(Evidence evidence);

/// The recipes of one system for a linear layer's operands.
struct Preset {
  std::string_view name;
  Recipe activation;
  Recipe weight;
  Recipe gradient;
  bool high_precision_wgrad = false;  ///< wgrad = dY^T X runs in BF16, from the original tensors
  std::string_view used_by;
  std::string_view source;  ///< version and file in which it was read
  Evidence evidence = Evidence::read;
  std::string_view not_compared = {};  ///< by reading: why there is no comparison

  // Recipes of an operand for its second product; unset: that of the first.
  std::optional<Recipe> weight_for_dgrad = {};
  std::optional<Recipe> activation_for_wgrad = {};
  std::optional<Recipe> gradient_for_wgrad = {};

  /// The recipe of an operand in its first product: dgrad for gradients, else fprop.
  [[nodiscard]] const Recipe& recipe(TensorRole role) const;

  /// The recipe of an operand in one product. Throws `Error` for a product without that operand,
  /// and for one that runs in high precision.
  [[nodiscard]] const Recipe& recipe(TensorRole role, LinearProduct product) const;
};

std::span<const Preset> presets();

/// The preset called `name`. Throws `Error` that lists the names.
const Preset& find_preset(std::string_view name);

}  // namespace fp8lab
