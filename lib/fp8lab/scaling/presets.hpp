#pragma once
// Recipes under the names of the systems that use them.

#include <optional>
#include <span>
#include <string_view>

#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// Which of a linear layer's operands a tensor is.
enum class TensorRole : std::uint8_t { activation, weight, gradient };
std::string_view to_string(TensorRole role);
TensorRole find_tensor_role(std::string_view name);

/// A product of a linear layer: Y = X W^T, dX = dY W, dW = dY^T X.
enum class LinearProduct : std::uint8_t { fprop, dgrad, wgrad };
std::string_view to_string(LinearProduct product);
/// Throws `Error`.
LinearProduct find_linear_product(std::string_view name);

/// How it is known that a preset has its system's bits.
enum class Evidence : std::uint8_t {
  compared,  ///< the system's package and this library gave the same codes and scales
  read,      ///< its source was read
  own,       ///< no system's: defined here
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
  std::string_view source;  ///< version and file that it was read from
  Evidence evidence = Evidence::read;

  // Where an operand is cast otherwise for its second product.
  std::optional<Recipe> weight_for_dgrad = {};
  std::optional<Recipe> activation_for_wgrad = {};
  std::optional<Recipe> gradient_for_wgrad = {};

  /// The recipe of an operand in its first product: fprop, and dgrad for gradients.
  [[nodiscard]] const Recipe& recipe(TensorRole role) const;

  /// The same for one product. Throws `Error` for a product that the operand does not enter, and
  /// for one that runs in high precision.
  [[nodiscard]] const Recipe& recipe(TensorRole role, LinearProduct product) const;
};

std::span<const Preset> presets();

/// The preset called `name`. Throws `Error` that lists them.
const Preset& find_preset(std::string_view name);

}  // namespace fp8lab
