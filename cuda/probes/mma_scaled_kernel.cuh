#pragma once
// The kernel of the mma.sync probes with block scales, apart from the instructions so that a test
// can run it on the host: as mma_kernel.cuh, and a word of scales for each row of A and column of
// B.

#include "probes/mma_kernel.cuh"
#include "probes/scale_words.hpp"

namespace fp8lab::cuda {

/// Op: issue(...), and kScales: how many scales a row has in one instruction (scale_words.hpp).
template <typename Op>
__global__ void __launch_bounds__(128) mma_scaled_probe(TileArguments arguments) {
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const ScaleWords<Op::kScales> scales(arguments, blockIdx.x);
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    const WarpShare share(tile, first_column);
    float sums[4];
    share.load(sums);
    for (int step = 0; step < tile.steps; ++step) {
      std::uint32_t a[4];
      std::uint32_t b[2];
      share.fragments(step, a, b);
      Op::issue(sums, a, b, scales.of_a(share.first_row() + scale_row_of_a(share.lane()), step),
                scales.of_b(first_column + scale_column_of_b(share.lane()), step));
    }
    share.store(sums);
  }
}

}  // namespace fp8lab::cuda
