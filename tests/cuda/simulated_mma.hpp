#pragma once
// mma.sync of the simulated chip: operands gathered from the fragments of a warp.

#include "simulated_chip.hpp"

namespace fp8lab::cuda {

template <typename StateType>
struct SimulatedMma {
  using State = StateType;
  template <typename Register, std::size_t kCount>
  static void issue(Register (&sums)[kCount], const std::uint32_t (&a)[4],
                    const std::uint32_t (&b)[2]) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    show_a(a);
    for (int reg = 0; reg < 2; ++reg)
      b_fragments.put(thread / 32 * 8 + lane / 4, lane % 4 * 4 + 16 * reg, b[reg]);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + (i >= 2 ? 8 : 0);
      const int column = thread / 32 * 8 + lane % 4 * 2 + i % 2;
      put_sum(sums, i,
              planted_result(a_fragments.row(row), b_fragments.row(column), get_sum(sums, i)));
    }
    __syncthreads();
  }
};

/// 16 bytes of K: as the first half of a row, which has terms enough.
template <typename StateType>
struct SimulatedShortMma {
  using State = StateType;
  template <typename Register, std::size_t kCount>
  static void issue(Register (&sums)[kCount], const std::uint32_t (&a)[2], std::uint32_t b) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    for (int reg = 0; reg < 2; ++reg)
      a_fragments.put(thread / 32 * 16 + lane / 4 + 8 * reg, lane % 4 * 4, a[reg]);
    b_fragments.put(thread / 32 * 8 + lane / 4, lane % 4 * 4, b);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + (i >= 2 ? 8 : 0);
      const int column = thread / 32 * 8 + lane % 4 * 2 + i % 2;
      put_sum(sums, i,
              planted_result(a_fragments.row(row), b_fragments.row(column), get_sum(sums, i), {},
                             {}, 16));
    }
    __syncthreads();
  }
};

/// Rows of B of a sparse instruction.
inline std::array<std::array<std::uint8_t, 64>, 32> sparse_b;

template <int kElementBytes>
struct SimulatedSparseMma {
  using State = FloatState;
  static constexpr int kElement = kElementBytes;
  static inline std::uint32_t kFiller = 0;  // set by `simulate`: of the probe's format
  static void issue(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[4],
                    std::uint32_t metadata) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    show_a(a);
    for (int reg = 0; reg < 4; ++reg)
      for (int byte = 0; byte < 4; ++byte)
        sparse_b[static_cast<std::size_t>(thread / 32 * 8 + lane / 4)]
                [static_cast<std::size_t>(lane % 4 * 4 + 16 * reg + byte)] =
                    static_cast<std::uint8_t>(b[reg] >> (8 * byte));
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + (i >= 2 ? 8 : 0);
      const int column = thread / 32 * 8 + lane % 4 * 2 + i % 2;
      const Row taken = selected(sparse_b[static_cast<std::size_t>(column)], metadata);
      put_sum(sums, i, planted_result(a_fragments.row(row), taken, get_sum(sums, i)));
    }
    __syncthreads();
  }
};

template <int kScaleCount>
struct SimulatedScaledMma {
  static constexpr int kScales = kScaleCount;
  static void issue(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                    std::uint32_t scale_a, std::uint32_t scale_b) {
    static std::array<std::array<std::uint32_t, 2>, 128> shown;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    show_a(a);
    for (int reg = 0; reg < 2; ++reg)
      b_fragments.put(thread / 32 * 8 + lane / 4, lane % 4 * 4 + 16 * reg, b[reg]);
    shown[threadIdx.x] = {scale_a, scale_b};
    __syncthreads();
    const auto scales = [&](int from, std::size_t side) {
      std::vector<std::uint8_t> bytes;
      for (int i = 0; i < kScaleCount; ++i)
        bytes.push_back(static_cast<std::uint8_t>(
            shown[static_cast<std::size_t>(thread / 32 * 32 + from)][side] >> (8 * i)));
      return bytes;
    };
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i >= 2 ? 8 : 0);
      const int column = lane % 4 * 2 + i % 2;
      // With selector 0 threads 0 and 1 of four hold A's scales, thread 0 B's.
      put_sum(sums, i,
              planted_result(a_fragments.row(thread / 32 * 16 + row),
                             b_fragments.row(thread / 32 * 8 + column), get_sum(sums, i),
                             scales(row % 8 * 4 + row / 8, 0), scales(column * 4, 1)));
    }
    __syncthreads();
  }
};

}  // namespace fp8lab::cuda
