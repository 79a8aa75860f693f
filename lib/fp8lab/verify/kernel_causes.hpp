#pragma once
// Mistakes around a sum: its split in parts, the upper of two levels of scales, its epilogue.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// One mistake, and what is cast instead, of this product or a sample of it; nothing where it has
/// no place for the mistake.
struct KernelMistake {
  std::string name;
  std::string text;
  std::function<std::optional<std::vector<float>>(const Product&)> output;
};

/// Those that a product has a place for: left out or other steps of the epilogue, a sum rounded
/// to 16 bits before it, a gate and its factor exchanged, other orders of a split, a tensor's scale
/// left out, inverted or applied twice.
std::vector<KernelMistake> kernel_mistakes(const Product& product);

}  // namespace fp8lab
