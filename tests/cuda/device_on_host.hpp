#pragma once
// Enough of CUDA to run a kernel's threads on the host: every thread of a block
// is a context or a thread here, shared memory is static. One block at a time.
// Include it before the kernel's header.

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
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

// The thread sanitizer sees races only between threads, and knows no others; elsewhere a thread of
// a block is a context that runs from one barrier to the next, which costs a hundredth of a thread.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FP8LAB_THREADS_ON_HOST 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define FP8LAB_THREADS_ON_HOST 1
#endif
#endif
#if !defined(FP8LAB_THREADS_ON_HOST)
#define FP8LAB_THREADS_ON_HOST 0
#endif

inline thread_local dim3 threadIdx;
inline thread_local dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

using std::max;
using std::min;

namespace device_on_host {

/// Most threads that a block has here.
inline constexpr unsigned kMostThreads = 256;

/// Counts blocks, so that what belongs to a thread of a block can tell that it is a new one.
inline unsigned block_number = 0;

/// A value of each thread of a block, fresh in every block.
template <typename T>
class OfThread {
 public:
  T* operator->() {
    Slot& slot = slots_[threadIdx.x];
    if (slot.block != block_number) slot = {block_number, {}};
    return &slot.value;
  }

 private:
  struct Slot {
    unsigned block = 0;
    T value{};
  };
  std::array<Slot, kMostThreads> slots_;
};

#if FP8LAB_THREADS_ON_HOST
inline std::optional<std::barrier<>> barrier;

inline void wait_for_block() { barrier->arrive_and_wait(); }

template <typename Kernel>
void run_block(dim3 block, unsigned threads, const Kernel& kernel) {
  barrier.emplace(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::jthread> all;
  for (unsigned t = 0; t < threads; ++t)
    all.emplace_back([=] {
      threadIdx = {t, 0, 0};
      blockIdx = block;
      kernel();
      barrier->arrive_and_drop();
    });
}
#else
/// The contexts of a block. Each runs until it waits for the others, or ends.
class Contexts {
 public:
  /// Runs `work` once in each of `threads` contexts.
  void run(dim3 block, unsigned threads, const std::function<void()>& work) {
    work_ = &work;
    while (stacks_.size() < threads) stacks_.emplace_back(kStackBytes);
    for (unsigned t = 0; t < threads; ++t) {
      ended_[t] = false;
      getcontext(&own_[t]);
      own_[t].uc_stack.ss_sp = stacks_[t].data();
      own_[t].uc_stack.ss_size = kStackBytes;
      own_[t].uc_link = &scheduler_;
      makecontext(&own_[t], &Contexts::enter, 0);
    }
    // Upwards and downwards in turn: what needs a barrier and has none shows in one of the two.
    unsigned round = 0;
    for (unsigned left = threads; left > 0; ++round)
      for (unsigned i = 0; i < threads; ++i) {
        const unsigned t = round % 2 == 0 ? i : threads - 1 - i;
        if (ended_[t]) continue;
        threadIdx = {t, 0, 0};
        blockIdx = block;
        swapcontext(&scheduler_, &own_[t]);
        if (ended_[t]) --left;
      }
  }
  void wait() { swapcontext(&own_[threadIdx.x], &scheduler_); }

  static Contexts& instance() {
    static Contexts contexts;
    return contexts;
  }

 private:
  static constexpr std::size_t kStackBytes = 256 * 1024;
  static void enter() {
    Contexts& all = instance();
    (*all.work_)();
    all.ended_[threadIdx.x] = true;
  }

  const std::function<void()>* work_ = nullptr;
  std::deque<std::vector<unsigned char>> stacks_;
  std::array<ucontext_t, kMostThreads> own_;
  std::array<bool, kMostThreads> ended_{};
  ucontext_t scheduler_;
};

inline void wait_for_block() { Contexts::instance().wait(); }

template <typename Kernel>
void run_block(dim3 block, unsigned threads, const Kernel& kernel) {
  Contexts::instance().run(block, threads, [&] { kernel(); });
}
#endif

/// Runs `kernel` for every thread of every block, blocks one after the other.
template <typename Kernel>
void launch(dim3 grid, unsigned threads, Kernel kernel) {
  if (threads > kMostThreads) std::abort();
  blockDim = {threads, 1, 1};
  gridDim = grid;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      ++block_number;
      run_block({x, y, 0}, threads, kernel);
    }
}

inline std::atomic<int> any{0};

}  // namespace device_on_host

inline void __syncthreads() { device_on_host::wait_for_block(); }

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
