#pragma once
// Scales of MX and NVFP4 groups in the order that Blackwell's tensor cores read: blocks of 128 rows
// and 4 columns, row-major, zeros where the matrix ends earlier. Within a block scale (r, c) stands
// at (r mod 32) * 16 + r / 32 * 4 + c (*specified*: cuBLAS, 1D block scaling factors layout;
// torchao 0.18.0's `to_blocked` gives the same bytes).

#include <cstdint>
#include <span>
#include <vector>

namespace fp8lab {

/// [32 * ceil(rows / 128), 16 * ceil(columns / 4)], as torchao shapes it.
std::vector<std::int64_t> blocked_shape(std::int64_t rows, std::int64_t columns);

/// `scales`: row-major [rows, columns]. Throws `Error` for another number of them.
std::vector<std::uint8_t> to_blocked(std::span<const std::uint8_t> scales, std::int64_t rows,
                                     std::int64_t columns);

/// The way back; what fills blocks is dropped. Throws `Error` for another number of scales.
std::vector<std::uint8_t> from_blocked(std::span<const std::uint8_t> blocked, std::int64_t rows,
                                       std::int64_t columns);

}  // namespace fp8lab
