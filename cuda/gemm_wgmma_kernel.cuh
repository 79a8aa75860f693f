#pragma once
// The kernels of the product on the tensor cores, apart from the instruction and
// the launch so that a test can run them on the host. A block of two warpgroups
// computes 128 x 128 outputs; tiles of 128 bytes of K arrive in shared memory by
// asynchronous copies, two tiles ahead, in the 128-byte swizzle. One group of
// instructions stays in flight while the next is issued, unless a promotion needs
// its sums.

#include "gemm_arguments.hpp"
#include "layout.hpp"
#include "wgmma_sync.cuh"

namespace fp8lab::cuda {

constexpr int kBlockRows = 128;
constexpr int kBlockColumns = 128;
constexpr int kBlockThreads = 256;
constexpr int kTilesAhead = 2;
// Beside the tiles under way: the one that is multiplied, and the one before it,
// which the other warpgroup may still be reading.
constexpr int kStages = kTilesAhead + 2;
constexpr int kTileBytes = 128 * 128;
constexpr int kSharedBytes = kStages * 2 * kTileBytes + 1024;  // swizzled tiles start at 1024 n
constexpr int kSums = 64;
constexpr int kSteps = 128 / kStepBytes;  // instructions along the K of a tile

/// Starts the copy of one K tile of A and B into a stage.
static __device__ void start_tile(const GemmArguments& g, int tile, std::uint32_t stage,
                                  int thread) {
  const std::size_t a_row = static_cast<std::size_t>(blockIdx.y) * kBlockRows;
  const std::size_t b_row = static_cast<std::size_t>(blockIdx.x) * kBlockColumns;
  for (int chunk = thread; chunk < kTileBytes / 16; chunk += kBlockThreads) {
    const int row = chunk / 8;
    const int byte = chunk % 8 * 16;
    const std::size_t from = static_cast<std::size_t>(tile) * 128 + byte;
    const std::uint32_t to = swizzled_offset(row, byte);
    copy_16_bytes(stage + to, g.a + (a_row + row) * g.row_bytes + from);
    copy_16_bytes(stage + kTileBytes + to, g.b + (b_row + row) * g.row_bytes + from);
  }
}

/// Where the inverse scales of a thread's rows and of the block's columns stand.
struct ScalePlaces {
  int row[2];
  const int* column;  ///< shared memory, [kBlockColumns]
};

/// Adds the partial sums of an interval that began at term k to the FP32 totals.
/// Rows and columns past the edge have zero sums and take the last scales.
static __device__ void promote_all(const GemmArguments& g, const ScalePlaces& places,
                                   int first_column, int k, const float (&sums)[kSums],
                                   float (&totals)[kSums]) {
  if (!g.scaled_along_k) {
    FP8LAB_UNROLL
    for (int i = 0; i < kSums; ++i) totals[i] = canonical_nan(totals[i] + sums[i]);
    return;
  }
  const float* a_values = g.scale_a.values;
  const float* b_values = g.scale_b.values;
  const int a_at = k / g.scale_a.k_block;
  const int b_at = k / g.scale_b.k_block;
  float s_a[2];
  FP8LAB_UNROLL
  for (int half = 0; half < 2; ++half)
    s_a[half] = a_values == nullptr ? 1.0F : a_values[places.row[half] + a_at];
  FP8LAB_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const int column = places.column[first_column + accumulator(0, i).column];
    const float s_b = b_values == nullptr ? 1.0F : b_values[column + b_at];
    totals[i] = scale_partial(g.order, sums[i], s_a[i / 2 % 2], s_b, totals[i]);
  }
}

/// kChunk steps of `Op::kTerms` terms run back to back: the promotion interval is a multiple of
/// them. Steps past K multiply zeros, as kernels fed by the copy engine do.
template <typename Op, int kChunk, bool kPromoted>
__global__ void __launch_bounds__(kBlockThreads, 1) multiply(const GemmArguments g) {
  FP8LAB_DYNAMIC_SHARED(raw_shared);
  __shared__ int column_scales[kBlockColumns];
  const std::uint32_t shared = (shared_address(raw_shared) + 1023u) & ~1023u;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / 128;
  const Place corner = accumulator(thread % 128, 0);
  const int first_row = static_cast<int>(blockIdx.y) * kBlockRows + group * 64 + corner.row;
  const int block_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  if (thread < kBlockColumns)
    column_scales[thread] =
        min(block_column + thread, g.n - 1) / g.scale_b.row_block * g.scale_b.columns;
  ScalePlaces places;
  places.column = column_scales;
  FP8LAB_UNROLL
  for (int half = 0; half < 2; ++half)
    places.row[half] = min(first_row + 8 * half, g.m - 1) / g.scale_a.row_block * g.scale_a.columns;

  float sums[kSums];
  float totals[kPromoted ? kSums : 1];
  const bool from_c = g.c != nullptr && !g.scaled_at_end;
  FP8LAB_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const Place at = accumulator(0, i);
    const int row = first_row + at.row;
    const int column = block_column + corner.column + at.column;
    const float start = from_c && row < g.m && column < g.n ? g.c_at(row, column) : 0.0F;
    if constexpr (kPromoted) {
      totals[i] = start;
    } else {
      sums[i] = start;
      // Loads that ptxas moves in among the products make it wait for each of them (its remark
      // C7515).
      pin(sums[i]);
    }
  }

  constexpr int kTileTerms = kSteps * Op::kTerms;
  const int tiles = (g.k + kTileTerms - 1) / kTileTerms;
  for (int tile = 0; tile < kTilesAhead; ++tile) {
    if (tile < tiles) start_tile(g, tile, shared + tile * 2 * kTileBytes, thread);
    commit_copies();
  }
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies<kTilesAhead - 1>();
    shared_writes_before_wgmma();
    __syncthreads();
    // Every warpgroup that comes here has waited for the products of tile - 2,
    // whose stage this copy takes.
    const int next = tile + kTilesAhead;
    if (next < tiles) start_tile(g, next, shared + next % kStages * 2 * kTileBytes, thread);
    commit_copies();

    const std::uint32_t stage = shared + tile % kStages * 2 * kTileBytes;
    const std::uint32_t a_tile = stage + group * (kTileBytes / 2);
    const std::uint32_t b_tile = stage + kTileBytes;
    FP8LAB_NO_UNROLL
    for (int first = 0; first < kSteps; first += kChunk) {
      const int k = tile * kTileTerms + first * Op::kTerms;
      const bool restarts = kPromoted && k % g.promotion_interval == 0;
      wgmma_fence();
      FP8LAB_UNROLL
      for (int step = 0; step < kChunk; ++step)
        Op::issue(sums, swizzled_descriptor(a_tile, first + step),
                  swizzled_descriptor(b_tile, first + step), step == 0 && restarts ? 0 : 1);
      wgmma_commit();
      wgmma_wait<1>();
      if constexpr (kPromoted) {
        const int end = k + kChunk * Op::kTerms;
        const bool last = tile + 1 == tiles && first + kChunk == kSteps;
        const int begin = (end - 1) / g.promotion_interval * g.promotion_interval;
        // Intervals that begin past K hold nothing and have no scales.
        if ((end % g.promotion_interval == 0 || last) && begin < g.k) {
          wgmma_wait<0>();
          FP8LAB_UNROLL
          for (int i = 0; i < kSums; ++i) pin(sums[i]);
          promote_all(g, places, corner.column, begin, sums, totals);
        }
      }
    }
  }
  wgmma_wait<0>();
  FP8LAB_UNROLL
  for (int i = 0; i < kSums; ++i) pin(sums[i]);

  FP8LAB_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const Place at = accumulator(0, i);
    const int row = first_row + at.row;
    const int column = block_column + corner.column + at.column;
    if (row >= g.m || column >= g.n) continue;
    float value = 0.0F;
    if constexpr (kPromoted)
      value = totals[i];
    else
      value = sums[i];
    g.d[static_cast<std::size_t>(row) * g.n + column] = value;
  }
}

}  // namespace fp8lab::cuda
