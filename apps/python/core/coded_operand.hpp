#pragma once
// An operand of a linear layer's product, from arrays.

#include <algorithm>
#include <cstdint>
#include <span>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/linear/products.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::python {

/// Inverse scales of a cast operand: one a tile, row by row, and the tensor's after them where the
/// recipe has two levels.
using ScaleVector = Vector<const float>;

/// Codes [rows, k] and their scales under the recipe's tiles.
inline train::CodedOperand coded_operand(const Recipe& recipe,
                                         const Matrix<const std::uint8_t>& codes,
                                         const ScaleVector& scales) {
  const auto rows = static_cast<std::int64_t>(codes.shape(0));
  const auto k = static_cast<std::int64_t>(codes.shape(1));
  const auto side = [](std::int64_t block, std::int64_t size) {
    return std::max<std::int64_t>(1, block == 0 ? size : std::min(block, size));
  };
  std::span<const float> tiles = span_of(scales);
  float tensor_scale = 1.0F;
  if (is_two_level(recipe.rule)) {
    require(!tiles.empty(), "scales", "those of the tiles, and the tensor's", "none");
    tensor_scale = tiles.back();
    tiles = tiles.first(tiles.size() - 1);
  }
  return {CodeMatrix::row_major(recipe.format, span_of(codes), rows, k),
          {tiles, side(recipe.row_block, rows), side(recipe.k_block, k), scale_format(recipe.rule),
           tensor_scale}};
}

}  // namespace fp8lab::python
