#pragma once
// The kernel of the tcgen05 probes, apart from the instructions so that a test can run it on the
// host: 128 rows, of which a tile fills the first 64. Sums live in tensor memory, one row a lane;
// they start as c.

#include "emulated_core.hpp"
#include "layout.hpp"
#include "probes/tcgen05_sync.cuh"
#include "tiles.hpp"

namespace fp8lab::cuda {

inline constexpr int kTensorRows = 128;
inline constexpr int kTensorColumns = 64;  // of tensor memory, 32 bits each

/// Op: issue(...), and kA, kB: the operands' types as the instruction descriptor numbers them
/// within its kind.
template <typename Op>
__global__ void __launch_bounds__(128) tcgen05_probe(TileArguments arguments) {
  alignas(128) __shared__ std::uint8_t a_shared[kTensorRows * kStepBytes];
  alignas(128) __shared__ std::uint8_t b_shared[kTile * kStepBytes];
  alignas(128) __shared__ std::uint8_t barrier[16];
  __shared__ std::uint32_t tensor_memory;
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int row_bytes = tile.steps * kStepBytes;
  const std::uint32_t done = shared_address(barrier);
  if (warp == 0) tcgen05_allocate<kTensorColumns>(&tensor_memory);
  if (thread == 0) init_barrier(done);
  fence_before_sync();
  __syncthreads();
  fence_after_sync();
  const std::uint32_t sums = tensor_memory;
  const std::uint32_t own_lanes = sums + (static_cast<std::uint32_t>(32 * warp) << 16);

  for (int first = 0; first < kTile; first += 8) {
    std::uint32_t x[8];
    for (int i = 0; i < 8; ++i)
      x[i] = thread < kTile ? bits_of(tile.c[case_of_c(thread, first + i)]) : 0u;
    store_columns(own_lanes + first, x);
  }
  wait_for_stores();

  for (int step = 0; step < tile.steps; ++step) {
    for (int word = thread; word < kTensorRows * kStepBytes / 4; word += 128) {
      const int row = word / (kStepBytes / 4);
      const int byte = word % (kStepBytes / 4) * 4;
      const int from = row * row_bytes + step * kStepBytes + byte;
      const std::uint32_t to = core_matrix_offset(row, byte);
      *reinterpret_cast<std::uint32_t*>(a_shared + to) =
          row < kTile ? *reinterpret_cast<const std::uint32_t*>(tile.a + from) : 0u;
      if (row < kTile)
        *reinterpret_cast<std::uint32_t*>(b_shared + to) =
            *reinterpret_cast<const std::uint32_t*>(tile.b + from);
    }
    // What was written the ordinary way is read by the tensor core in its own.
    shared_writes_before_tcgen05();
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    if (thread == 0) {
      Op::issue(sums, tcgen05_descriptor(shared_address(a_shared)),
                tcgen05_descriptor(shared_address(b_shared)),
                tcgen05_instruction(Op::kA, Op::kB, kTensorRows, kTile));
      commit(done);
    }
    wait_for(done, static_cast<std::uint32_t>(step % 2));
    __syncthreads();
    fence_after_sync();
  }

  for (int first = 0; first < kTile; first += 8) {
    std::uint32_t x[8];
    load_columns(x, own_lanes + first);
    if (thread < kTile)
      for (int i = 0; i < 8; ++i) tile.d[thread * kTile + first + i] = float_of(x[i]);
  }
  fence_before_sync();
  __syncthreads();
  fence_after_sync();
  if (warp == 0) {
    tcgen05_free<kTensorColumns>(sums);
  }
}

}  // namespace fp8lab::cuda
