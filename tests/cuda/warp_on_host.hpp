#pragma once
// What the threads of a warp do together in the emulated product of E4M3, on the host.
// All warps of a block do it at the same time here.

#include <bit>
#include <limits>

#include "device_on_host.hpp"

namespace device_on_host {

/// What a chip may make of a sum of powers that lie far apart: lose every term but the largest,
/// or none, and round up. A kernel that only wants the exponent must not care.
enum class PowerSums : int { largest, rounded_up };
inline PowerSums power_sums = PowerSums::largest;

struct Fragment {
  std::uint32_t a[4];
  std::uint32_t b[2];
};
inline std::array<Fragment, kMostThreads> fragments;

inline float bf16_half(std::uint32_t word, int half) {
  return std::bit_cast<float>(half == 0 ? word << 16 : word & 0xffff0000u);
}

/// sum + the 16 products of row `row` and column `column` of a warp's fragments.
inline float sum_of_powers(unsigned warp, unsigned row, unsigned column, float sum) {
  double all = static_cast<double>(sum);
  double largest = all;
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned member = k % 8 / 2;
    const Fragment& a = fragments[warp * 32 + row % 8 * 4 + member];
    const Fragment& b = fragments[warp * 32 + column * 4 + member];
    const double product =
        static_cast<double>(bf16_half(a.a[row / 8 + k / 8 * 2], static_cast<int>(k % 2))) *
        static_cast<double>(bf16_half(b.b[k / 8], static_cast<int>(k % 2)));
    all += product;
    largest = std::max(largest, product);
  }
  if (power_sums == PowerSums::largest) return static_cast<float>(largest);
  return std::nextafter(static_cast<float>(all), std::numeric_limits<float>::infinity());
}

}  // namespace device_on_host

/// The BF16 product of a warp, by PTX's fragments of m16n8k16.
inline void multiply_powers(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                            std::uint32_t b1) {
  device_on_host::fragments[threadIdx.x] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  for (unsigned q = 0; q < 4; ++q)
    d[q] = device_on_host::sum_of_powers(threadIdx.x / 32, lane / 4 + q / 2 * 8,
                                         lane % 4 * 2 + q % 2, d[q]);
  __syncthreads();
}

/// On the host, whether a thread of the block says so: warps stay together.
inline bool nan_in_warp(bool nan) { return __syncthreads_or(nan) != 0; }
