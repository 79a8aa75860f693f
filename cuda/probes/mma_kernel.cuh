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

template <typename Op>
__global__ void __launch_bounds__(128) mma_probe(TileArguments arguments) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int row_bytes = tile.steps * kStepBytes;
  const std::uint8_t* const a = tile.a + first_row * row_bytes;
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    float sums[4];
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      sums[i] = tile.c[case_of_c(first_row + at.row, first_column + at.column)];
    }
    typename Op::State state(sums);
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
      Op::issue(state.registers, a_registers, b_registers);
    }
    state.read(sums);
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      tile.d[(first_row + at.row) * kTile + first_column + at.column] = sums[i];
    }
  }
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
