#pragma once
// The kernel of the wgmma probes, apart from the instructions so that a test can
// run it on the host.

#include "emulated_core.hpp"
#include "layout.hpp"
#include "tiles.hpp"
#include "wgmma_sync.cuh"

namespace fp8lab::cuda {

/// Instructions in flight at once: chained ones see the accumulator as the
/// tensor core left it, without a trip through a wait.
inline constexpr int kChain = 4;

/// How accumulator registers hold values: binary32 one each, FP16 two.
template <typename Register>
struct AccumulatorRegisters;

template <>
struct AccumulatorRegisters<float> {
  static constexpr int kValues = 1;
  static __device__ void put(float& reg, int, float value) { reg = value; }
  static __device__ float get(float reg, int) { return reg; }
};

template <>
struct AccumulatorRegisters<std::uint32_t> {
  static constexpr int kValues = 2;
  static __device__ void put(std::uint32_t& reg, int half, float value) {
    const std::uint32_t code = half_from_float(value);
    reg = half == 0 ? code : reg | (code << 16);
  }
  static __device__ float get(std::uint32_t reg, int half) {
    return float_from_half((reg >> (16 * half)) & 0xffffu);
  }
};

/// What instructions do not have unless they say so.
struct WgmmaDefaults {
  /// Sign bits of A's or B's elements. They are flipped here, and the instruction negates them
  /// back.
  static constexpr std::uint32_t kFlipA = 0;
  static constexpr std::uint32_t kFlipB = 0;
  static constexpr int kSparseElement = 0;     ///< bytes of an element of a sparse instruction
  static constexpr std::uint32_t kFiller = 0;  ///< elements of B that it must not take
};

/// Op: kN columns, kRegisters accumulator registers of type Register, kAInRegisters, issue(...). An
/// instruction of more than 64 columns gets the tile's columns more than once; a value that differs
/// from the first is the one that is stored.
template <typename Op>
__global__ void __launch_bounds__(128) wgmma_probe(TileArguments arguments) {
  using Register = typename Op::Register;
  using Access = AccumulatorRegisters<Register>;
  constexpr int kCopies = Op::kN > kTile ? Op::kN / kTile : 1;
  constexpr int kGroups = kTile * kCopies / Op::kN;
  constexpr int kValues = Op::kRegisters * Access::kValues;
  constexpr bool kSparse = Op::kSparseElement > 0;
  constexpr int kTileBytes = kTile * kStepBytes;
  constexpr int kBRowBytes = kSparse ? kSparseBytes : kStepBytes;
  constexpr int kBTileBytes = kTile * kCopies * kBRowBytes;
  alignas(128) __shared__ std::uint8_t a_shared[kChain * kTileBytes];
  alignas(128) __shared__ std::uint8_t b_shared[kChain * kBTileBytes];
  const int thread = static_cast<int>(threadIdx.x);
  const TileArguments tile = arguments.of_tile(blockIdx.x);
  const int steps = tile.steps;
  const int row_bytes = steps * kStepBytes;

  Register sums[kGroups][Op::kRegisters];
  FP8LAB_UNROLL
  for (int group = 0; group < kGroups; ++group) FP8LAB_UNROLL
  for (int i = 0; i < kValues; ++i) {
    const Place at = accumulator(thread, i);
    Access::put(sums[group][i / Access::kValues], i % Access::kValues,
                tile.c[case_of_c(at.row, (at.column + group * Op::kN) % kTile)]);
  }

  for (int first = 0; first < steps; first += kChain) {
    const int count = min(kChain, steps - first);
    for (int word = thread; word < count * kTileBytes / 4; word += 128) {
      const int step = word / (kTileBytes / 4);
      const int row = word / (kStepBytes / 4) % kTile;
      const int byte = word % (kStepBytes / 4) * 4;
      const int from = row * row_bytes + (first + step) * kStepBytes + byte;
      *reinterpret_cast<std::uint32_t*>(a_shared + step * kTileBytes +
                                        core_matrix_offset(row, byte)) =
          *reinterpret_cast<const std::uint32_t*>(tile.a + from) ^ Op::kFlipA;
    }
    for (int word = thread; word < count * kBTileBytes / 4; word += 128) {
      const int step = word / (kBTileBytes / 4);
      const int row = word / (kBRowBytes / 4) % (kTile * kCopies);
      const int in_row = word % (kBRowBytes / 4);
      const std::uint8_t* from = tile.b + row % kTile * row_bytes + (first + step) * kStepBytes;
      std::uint32_t bits = 0;
      if constexpr (kSparse)
        bits = sparse_word(from, in_row, Op::kSparseElement, Op::kFiller);
      else
        bits = reinterpret_cast<const std::uint32_t*>(from)[in_row];
      *reinterpret_cast<std::uint32_t*>(b_shared + step * kBTileBytes +
                                        core_matrix_offset(row, in_row * 4, kBRowBytes)) =
          bits ^ Op::kFlipB;
    }
    shared_writes_before_wgmma();
    __syncthreads();

    FP8LAB_NO_UNROLL
    for (int step = 0; step < count; ++step) {
      const std::uint32_t b_at = shared_address(b_shared) + step * kBTileBytes;
      std::uint32_t a_registers[4];
      if constexpr (Op::kAInRegisters) {
        FP8LAB_UNROLL
        for (int reg = 0; reg < 4; ++reg) {
          const Place at = a_fragment(thread, reg);
          a_registers[reg] =
              *reinterpret_cast<const std::uint32_t*>(tile.a + at.row * row_bytes +
                                                      (first + step) * kStepBytes + at.column) ^
              Op::kFlipA;
        }
      }
      wgmma_fence();
      FP8LAB_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        // N columns of B are N / 8 row groups of its tile.
        const std::uint32_t columns_at = b_at + group * (Op::kN / 8) * 8 * kBRowBytes;
        [[maybe_unused]] const std::uint64_t a_matrix =
            core_descriptor(shared_address(a_shared) + step * kTileBytes);
        if constexpr (kSparse)
          Op::issue(sums[group], a_matrix, sparse_descriptor(columns_at), kSparseMetadata);
        else if constexpr (Op::kAInRegisters)
          Op::issue(sums[group], a_registers, core_descriptor(columns_at));
        else
          Op::issue(sums[group], a_matrix, core_descriptor(columns_at));
      }
      wgmma_commit();
      // The registers of A may not change under an instruction in flight.
      if constexpr (Op::kAInRegisters) wgmma_wait<0>();
    }
    wgmma_wait<0>();
    FP8LAB_UNROLL
    for (int group = 0; group < kGroups; ++group) FP8LAB_UNROLL
    for (int i = 0; i < Op::kRegisters; ++i) pin(sums[group][i]);
    __syncthreads();
  }

  const auto value = [&sums](int group, int i) {
    return Access::get(sums[group][i / Access::kValues], i % Access::kValues);
  };
  FP8LAB_UNROLL
  for (int group = 0; group < kGroups; ++group) FP8LAB_UNROLL
  for (int i = 0; i < kValues / kCopies; ++i) {
    float d = value(group, i);
    FP8LAB_UNROLL
    for (int copy = 1; copy < kCopies; ++copy) {
      const float other = value(group, i + copy * kTile / 2);
      if (bits_of(other) != bits_of(value(group, i))) d = other;
    }
    const Place at = accumulator(thread, i);
    tile.d[at.row * kTile + at.column + group * Op::kN] = d;
  }
}

}  // namespace fp8lab::cuda
