#pragma once
// Transposes of codes, in blocks that fit into registers.

#include <cstddef>
#include <cstdint>

#include "fp8lab/core/target.hpp"

namespace fp8lab::scaling_detail {

/// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns.
using TurnBytes = void (*)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
                           std::size_t columns, std::uint8_t* to, std::size_t to_stride);

TurnBytes turn_bytes(Target target);

}  // namespace fp8lab::scaling_detail
