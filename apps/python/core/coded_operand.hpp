#pragma once
// An operand of a linear layer's product, from arrays.

#include <algorithm>
#include <cstdint>

#include "bindings.hpp"
#include "fp8lab/train/products.hpp"

namespace fp8lab::python {

/// Codes [rows, k] and inverse scales [row tiles, k tiles] under their recipe's tiles.
inline train::CodedOperand coded_operand(const Recipe& recipe,
                                         const Matrix<const std::uint8_t>& codes,
                                         const Matrix<const float>& inverse_scales) {
  const auto rows = static_cast<std::int64_t>(codes.shape(0));
  const auto k = static_cast<std::int64_t>(codes.shape(1));
  const auto side = [](std::int64_t block, std::int64_t size) {
    return std::max<std::int64_t>(1, block == 0 ? size : std::min(block, size));
  };
  return {CodeMatrix::row_major(recipe.format, span_of(codes), rows, k),
          {span_of(inverse_scales), side(recipe.row_block, rows), side(recipe.k_block, k)}};
}

}  // namespace fp8lab::python
