#pragma once
// Transposes of codes, in blocks that fit into registers.

#include <cstddef>
#include <cstdint>

#include "fp8lab/core/target.hpp"

namespace fp8lab::scaling_detail {

struct TurnKernels {
  /// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns.
  void (*turn)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::uint8_t* to, std::size_t to_stride);
  /// to[r * to_stride + c] = from[r * from_stride + c]: rows are short, and calls of memcpy dear.
  void (*copy)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::uint8_t* to, std::size_t to_stride);
  /// The same around the caches. Rows of `to` begin on whole cache lines.
  void (*stream)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
                 std::size_t columns, std::uint8_t* to, std::size_t to_stride);
};

const TurnKernels& turn_kernels(Target target);

}  // namespace fp8lab::scaling_detail
