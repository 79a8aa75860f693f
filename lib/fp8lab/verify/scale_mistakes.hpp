#pragma once
// Known mistakes in the scales of an operand: in their values, and in the places they are read
// from.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

struct ScaleMistake {
  std::string name;  ///< with {} for the operand: a, b, a_and_b
  std::string text;  ///< with {} for "A's scale", "B's scale" or "both scales"
  /// The sampled product with the mistake in the scales of a side; nothing where it would change
  /// nothing. The scales need not be values that the instruction takes.
  std::function<std::optional<Product>(const Product& whole, const Sample& sample, Side side)> take;
};

/// The mistakes that are possible in this product; of two that give the same, the likelier first.
std::vector<ScaleMistake> scale_mistakes(const Product& product);

}  // namespace fp8lab
