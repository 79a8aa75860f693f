#pragma once
// The kernel of the mma.sync probes, apart from the instructions so that a test can run it on the
// host: every warp computes 16 rows of a tile, 8 columns at a time.

#include "emulated_core.hpp"
#include "layout.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

FP8LAB_HD inline std::uint32_t word_at(const std::uint8_t* matrix, int row, int byte,
                                       int row_bytes) {
  return *reinterpret_cast<const std::uint32_t*>(matrix + row * row_bytes + byte);
}

/// What a lane holds of its warp's 16 rows and 8 columns of a tile.
class WarpShare {
 public:
  __device__ WarpShare(const TileArguments& tile, int first_column)
      : tile_(tile),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_row_(static_cast<int>(threadIdx.x) / 32 * 16),
        first_column_(first_column) {}

  [[nodiscard]] __device__ int lane() const { return lane_; }
  [[nodiscard]] __device__ int first_row() const { return first_row_; }

  __device__ void load(float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane_, i);
      sums[i] = tile_.c[case_of_c(first_row_ + at.row, first_column_ + at.column)];
    }
  }
  __device__ void store(const float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane_, i);
      tile_.d[(first_row_ + at.row) * kTile + first_column_ + at.column] = sums[i];
    }
  }
  /// The registers of one instruction.
  __device__ void fragments(int step, std::uint32_t (&a)[4], std::uint32_t (&b)[2]) const {
    const int row_bytes = tile_.steps * kStepBytes;
    for (int reg = 0; reg < 4; ++reg) {
      const Place at = a_fragment(lane_, reg);
      a[reg] = word_at(tile_.a, first_row_ + at.row, step * kStepBytes + at.column, row_bytes);
    }
    for (int reg = 0; reg < 2; ++reg) {
      const Place at = b_fragment(lane_, reg);
      b[reg] = word_at(tile_.b, first_column_ + at.row, step * kStepBytes + at.column, row_bytes);
    }
  }

 private:
  const TileArguments& tile_;
  int lane_;
  int first_row_;
  int first_column_;
};

/// All steps of a tile, eight columns at a time. issue(share, first_column, step, registers) does
/// one.
template <typename State, typename Issue>
__device__ void each_step(const TileArguments& tile, const Issue& issue) {
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    const WarpShare share(tile, first_column);
    float sums[4];
    share.load(sums);
    State state(sums);
    for (int step = 0; step < tile.steps; ++step) issue(share, first_column, step, state.registers);
    state.read(sums);
    share.store(sums);
  }
}

template <typename Op>
__global__ void __launch_bounds__(128) mma_probe(TileArguments arguments) {
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  each_step<typename Op::State>(tile, [](const WarpShare& share, int, int step, auto& registers) {
    std::uint32_t a[4];
    std::uint32_t b[2];
    share.fragments(step, a, b);
    Op::issue(registers, a, b);
  });
}

/// Instructions that take half a step, 16 bytes of K: two of them a step.
template <typename Op>
__global__ void __launch_bounds__(128) mma_short_probe(TileArguments arguments) {
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  each_step<typename Op::State>(tile, [](const WarpShare& share, int, int step, auto& registers) {
    std::uint32_t a[4];
    std::uint32_t b[2];
    share.fragments(step, a, b);
    // Registers 0 and 1 of A hold the first 16 bytes of both rows.
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t part[2] = {a[2 * half], a[2 * half + 1]};
      Op::issue(registers, part, b[half]);
    }
  });
}

/// Sparse instructions: the step's 32 bytes of A are what is stored of 64, and B is spread over 64.
/// Op: also kElement, bytes of an element, and kFiller, elements of B that it must not take.
template <typename Op>
__global__ void __launch_bounds__(128) mma_sparse_probe(TileArguments arguments) {
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  each_step<typename Op::State>(
      tile, [&](const WarpShare& share, int first_column, int step, auto& registers) {
        std::uint32_t a[4];
        std::uint32_t dense[2];
        std::uint32_t b[4];
        share.fragments(step, a, dense);
        for (int reg = 0; reg < 4; ++reg) {
          const Place at = b_fragment(share.lane(), reg);
          b[reg] = sparse_word(
              tile.b + (first_column + at.row) * tile.steps * kStepBytes + step * kStepBytes,
              at.column / 4, Op::kElement, Op::kFiller);
        }
        Op::issue(registers, a, b, kSparseMetadata);
      });
}

struct FloatState {
  float registers[4];
  __device__ explicit FloatState(const float (&sums)[4]) {
    for (int i = 0; i < 4; ++i) registers[i] = sums[i];
  }
  __device__ void read(float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i) sums[i] = registers[i];
  }
};

struct HalfState {
  std::uint32_t registers[2];
  __device__ explicit HalfState(const float (&sums)[4]) {
    for (int i = 0; i < 2; ++i)
      registers[i] = half_from_float(sums[2 * i]) | (half_from_float(sums[2 * i + 1]) << 16);
  }
  __device__ void read(float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i)
      sums[i] = float_from_half((registers[i / 2] >> (16 * (i % 2))) & 0xffffu);
  }
};

}  // namespace fp8lab::cuda
