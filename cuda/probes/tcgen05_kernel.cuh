#pragma once
// The kernel of the tcgen05 probes, apart from the instructions so that a test can run it on the
// host: 128 rows, of which a tile fills the first 64. Sums live in tensor memory, one row a lane;
// they start as c. FP16 sums are in the low half of a word. Block scales follow the sums, A's four
// columns and then B's; then, of a sparse instruction, the metadata: the same word everywhere.

#include "emulated_core.hpp"
#include "layout.hpp"
#include "probes/scale_words.hpp"
#include "probes/tcgen05_sync.cuh"
#include "tiles.hpp"

namespace fp8lab::cuda {

inline constexpr int kTensorRows = 128;
inline constexpr int kScaleColumns = 4;  // of tensor memory, for 128 rows

/// What instructions do not have unless they say so.
struct Tcgen05Defaults {
  static constexpr bool kHalfSums = false;
  static constexpr int kScales = 0;
  static constexpr int kScaleType = 0;
  /// Sign bits of A's or B's elements. They are flipped here, and the instruction negates them
  /// back.
  static constexpr std::uint32_t kFlipA = 0;
  static constexpr std::uint32_t kFlipB = 0;
  static constexpr int kSparseElement = 0;     ///< bytes of an element of a sparse instruction
  static constexpr std::uint32_t kFiller = 0;  ///< elements of B that it must not take
};

/// A sum as a word of tensor memory holds it. Chips may leave anything above an FP16 sum.
template <bool kHalf>
__device__ std::uint32_t as_sum(float value) {
  return kHalf ? half_from_float(value) : bits_of(value);
}
template <bool kHalf>
__device__ float from_sum(std::uint32_t word) {
  return kHalf ? float_from_half(word & 0xffffu) : float_of(word);
}

/// Op: issue(...), kA and kB: the operands' types as the instruction descriptor numbers them
/// within its kind; kHalfSums; kScales: how many scales a row has in one instruction, 0, 1, 2 or 4;
/// kScaleType: the scales' type as that descriptor numbers it; and what Tcgen05Defaults has.
template <typename Op>
__global__ void __launch_bounds__(128) tcgen05_probe(TileArguments arguments) {
  // Columns of tensor memory, 32 bits each: a power of two.
  constexpr bool kSparse = Op::kSparseElement > 0;
  constexpr int kColumns = Op::kScales == 0 && !kSparse ? kTile : 2 * kTile;
  constexpr int kBRowBytes = kSparse ? kSparseBytes : kStepBytes;
  constexpr int kMetadata = kTile + (Op::kScales > 0 ? 2 * kScaleColumns : 0);
  const std::uint32_t instruction =
      (Op::kScales == 0
           ? tcgen05_instruction(Op::kHalfSums ? 0 : 1, Op::kA, Op::kB, kTensorRows, kTile)
           : tcgen05_scaled_instruction(Op::kScaleType, Op::kA, Op::kB, kTensorRows, kTile)) |
      tcgen05_form(kSparse, Op::kFlipA != 0, Op::kFlipB != 0);
  alignas(128) __shared__ std::uint8_t a_shared[kTensorRows * kStepBytes];
  alignas(128) __shared__ std::uint8_t b_shared[kTile * kBRowBytes];
  alignas(128) __shared__ std::uint8_t barrier[16];
  __shared__ std::uint32_t tensor_memory;
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int row_bytes = tile.steps * kStepBytes;
  const std::uint32_t done = shared_address(barrier);
  if (warp == 0) tcgen05_allocate<kColumns>(&tensor_memory);
  if (thread == 0) init_barrier(done);
  fence_before_sync();
  __syncthreads();
  fence_after_sync();
  const std::uint32_t sums = tensor_memory;
  const std::uint32_t own_lanes = sums + (static_cast<std::uint32_t>(32 * warp) << 16);

  for (int first = 0; first < kTile; first += 8) {
    std::uint32_t x[8];
    for (int i = 0; i < 8; ++i)
      x[i] = thread < kTile ? as_sum<Op::kHalfSums>(tile.c[case_of_c(thread, first + i)]) : 0u;
    store_columns(own_lanes + first, x);
  }
  if constexpr (kSparse) {
    // Two columns are enough for 64 elements; whatever else is read holds the same.
    std::uint32_t x[8];
    for (int i = 0; i < 8; ++i) x[i] = kSparseMetadata;
    store_columns(own_lanes + kMetadata, x);
  }
  wait_for_stores();

  for (int step = 0; step < tile.steps; ++step) {
    for (int word = thread; word < kTensorRows * kStepBytes / 4; word += 128) {
      const int row = word / (kStepBytes / 4);
      const int byte = word % (kStepBytes / 4) * 4;
      const int from = row * row_bytes + step * kStepBytes + byte;
      const std::uint32_t to = core_matrix_offset(row, byte);
      *reinterpret_cast<std::uint32_t*>(a_shared + to) =
          row < kTile ? *reinterpret_cast<const std::uint32_t*>(tile.a + from) ^ Op::kFlipA : 0u;
    }
    for (int word = thread; word < kTile * kBRowBytes / 4; word += 128) {
      const int row = word / (kBRowBytes / 4);
      const int in_row = word % (kBRowBytes / 4);
      const std::uint8_t* from = tile.b + row * row_bytes + step * kStepBytes;
      std::uint32_t bits = 0;
      if constexpr (kSparse)
        bits = sparse_word(from, in_row, Op::kSparseElement, Op::kFiller);
      else
        bits = reinterpret_cast<const std::uint32_t*>(from)[in_row];
      *reinterpret_cast<std::uint32_t*>(
          b_shared + core_matrix_offset(row, in_row * 4, kBRowBytes)) = bits ^ Op::kFlipB;
    }
    if constexpr (Op::kScales > 0) {
      // Every warp writes the same.
      const ScaleWords<Op::kScales> scales(arguments, blockIdx.x);
      std::uint32_t x[2 * kScaleColumns];
      for (int column = 0; column < kScaleColumns; ++column) {
        const int row = tcgen05_scale_row(thread, column);
        x[column] = row < kTile ? scales.of_a(row, step) : 0u;
        x[kScaleColumns + column] = row < kTile ? scales.of_b(row, step) : 0u;
      }
      store_columns(own_lanes + kTile, x);
      wait_for_stores();
    }
    // What was written the ordinary way is read by the tensor core in its own.
    shared_writes_before_tcgen05();
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    if (thread == 0) {
      const std::uint64_t a = tcgen05_descriptor(shared_address(a_shared));
      const std::uint64_t b = kSparse ? tcgen05_sparse_descriptor(shared_address(b_shared))
                                      : tcgen05_descriptor(shared_address(b_shared));
      if constexpr (kSparse && Op::kScales > 0)
        Op::issue(sums, a, b, instruction, sums + kMetadata, sums + kTile,
                  sums + kTile + kScaleColumns);
      else if constexpr (kSparse)
        Op::issue(sums, a, b, instruction, sums + kMetadata);
      else if constexpr (Op::kScales > 0)
        Op::issue(sums, a, b, instruction, sums + kTile, sums + kTile + kScaleColumns);
      else
        Op::issue(sums, a, b, instruction);
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
      for (int i = 0; i < 8; ++i)
        tile.d[thread * kTile + first + i] = from_sum<Op::kHalfSums>(x[i]);
  }
  fence_before_sync();
  __syncthreads();
  fence_after_sync();
  if (warp == 0) {
    tcgen05_free<kColumns>(sums);
  }
}

}  // namespace fp8lab::cuda
