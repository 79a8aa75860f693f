#pragma once
// Enough of CUDA to run a kernel's threads on the host: every thread of a block
// is a thread here, barriers are barriers, shared memory is static. One block at
// a time. Include it before the kernel's header.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#define __device__ inline
#define __global__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static
#define FP8LAB_DYNAMIC_SHARED(name) alignas(16) static unsigned char name[136 * 1024] = {}

struct uint2 {
  std::uint32_t x, y;
};
struct uint4 {
  std::uint32_t x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline thread_local dim3 threadIdx;
inline thread_local dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

using std::max;
using std::min;

namespace device_on_host {

inline std::optional<std::barrier<>> barrier;
inline std::atomic<int> any{0};

/// Runs `kernel` for every thread of every block, blocks one after the other.
template <typename Kernel>
void launch(dim3 grid, unsigned threads, Kernel kernel) {
  blockDim = {threads, 1, 1};
  gridDim = grid;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      barrier.emplace(static_cast<std::ptrdiff_t>(threads));
      std::vector<std::jthread> block;
      for (unsigned t = 0; t < threads; ++t)
        block.emplace_back([=] {
          threadIdx = {t, 0, 0};
          blockIdx = {x, y, 0};
          kernel();
          barrier->arrive_and_drop();
        });
    }
}

}  // namespace device_on_host

inline void __syncthreads() { device_on_host::barrier->arrive_and_wait(); }

inline int __syncthreads_or(int predicate) {
  if (predicate != 0) device_on_host::any = 1;
  __syncthreads();
  const int result = device_on_host::any;
  __syncthreads();
  device_on_host::any = 0;
  __syncthreads();
  return result;
}

/// max(a + b, c) of two pairs of 16-bit integers.
inline std::uint32_t __viaddmax_s16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto half = [&](int shift) {
    const auto part = [shift](std::uint32_t x) {
      return static_cast<int>(static_cast<std::int16_t>((x >> shift) & 0xffffu));
    };
    return static_cast<std::uint32_t>(std::max(part(a) + part(b), part(c)) & 0xffff) << shift;
  };
  return half(0) | half(16);
}
