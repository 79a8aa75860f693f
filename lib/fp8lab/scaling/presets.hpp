#pragma once
// Recipes under the names of the systems that use them.

#include <span>
#include <string_view>

#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// Which of a linear layer's operands a tensor is.
enum class TensorRole : std::uint8_t { activation, weight, gradient };
std::string_view to_string(TensorRole role);
TensorRole find_tensor_role(std::string_view name);

/// The recipes of one system for a linear layer's three operands.
struct Preset {
  std::string_view name;
  Recipe activation;
  Recipe weight;
  Recipe gradient;
  bool high_precision_wgrad = false;  ///< wgrad = dY^T X runs in BF16, from the original tensors
  std::string_view used_by;

  [[nodiscard]] const Recipe& recipe(TensorRole role) const;
};

std::span<const Preset> presets();

/// The preset called `name`. Throws `Error` that lists them.
const Preset& find_preset(std::string_view name);

}  // namespace fp8lab
