#pragma once
// The kernel of the mma.sync probes with block scales, apart from the instructions so that a test
// can run it on the host: as mma_kernel.cuh, and a word of scales for each row of A and column of
// B.

#include "probes/mma_kernel.cuh"

namespace fp8lab::cuda {

/// Op: issue(...), and kScales: how many scales a row has in one instruction, 1, 2 or 4, the first
/// in the low byte of the word that it takes.
template <typename Op>
__global__ void __launch_bounds__(128) mma_scaled_probe(TileArguments arguments) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int row_bytes = tile.steps * kStepBytes;
  const int row_scales = tile.steps * Op::kScales;
  const std::uint8_t* const a = tile.a + first_row * row_bytes;
  const std::size_t first_scale = static_cast<std::size_t>(blockIdx.x) * kTile * row_scales;
  const std::uint8_t* const a_scales = arguments.a_scales + first_scale + first_row * row_scales;
  const std::uint8_t* const b_scales = arguments.b_scales + first_scale;
  const auto scales_of = [&](const std::uint8_t* scales, int row, int step) {
    std::uint32_t word = 0;
    for (int i = 0; i < Op::kScales; ++i)
      word |= static_cast<std::uint32_t>(scales[row * row_scales + step * Op::kScales + i])
              << (8 * i);
    return word;
  };
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    float sums[4];
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      sums[i] = tile.c[case_of_c(first_row + at.row, first_column + at.column)];
    }
    for (int step = 0; step < tile.steps; ++step) {
      std::uint32_t a_registers[4];
      std::uint32_t b_registers[2];
      for (int reg = 0; reg < 4; ++reg) {
        const Place at = a_fragment(lane, reg);
        a_registers[reg] = word_at(a, at.row, step * kStepBytes + at.column, row_bytes);
      }
      for (int reg = 0; reg < 2; ++reg) {
        const Place at = b_fragment(lane, reg);
        b_registers[reg] =
            word_at(tile.b, first_column + at.row, step * kStepBytes + at.column, row_bytes);
      }
      Op::issue(sums, a_registers, b_registers, scales_of(a_scales, scale_row_of_a(lane), step),
                scales_of(b_scales, first_column + scale_column_of_b(lane), step));
    }
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      tile.d[(first_row + at.row) * kTile + first_column + at.column] = sums[i];
    }
  }
}

}  // namespace fp8lab::cuda
