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
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int row_scales = tile.steps * Op::kScales;
  const std::size_t first_scale = static_cast<std::size_t>(blockIdx.x) * kTile * row_scales;
  const std::uint8_t* const a_scales = arguments.a_scales + first_scale;
  const std::uint8_t* const b_scales = arguments.b_scales + first_scale;
  const auto scales_of = [&](const std::uint8_t* scales, int row, int step) {
    std::uint32_t word = 0;
    for (int i = 0; i < Op::kScales; ++i)
      word |= static_cast<std::uint32_t>(scales[row * row_scales + step * Op::kScales + i])
              << (8 * i);
    return word;
  };
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    const WarpShare share(tile, first_column);
    float sums[4];
    share.load(sums);
    for (int step = 0; step < tile.steps; ++step) {
      std::uint32_t a[4];
      std::uint32_t b[2];
      share.fragments(step, a, b);
      Op::issue(sums, a, b,
                scales_of(a_scales, share.first_row() + scale_row_of_a(share.lane()), step),
                scales_of(b_scales, first_column + scale_column_of_b(share.lane()), step));
    }
    share.store(sums);
  }
}

}  // namespace fp8lab::cuda
