#pragma once
// The ordering that wgmma asks for, as PTX: who may read what, and when.

#include <cstdint>

// On the host a test brings its own.
#if defined(__CUDACC__)

namespace fp8lab::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Ordinary writes to shared memory become visible to the tensor cores, which
/// read through the asynchronous proxy. Each writing thread, before the barrier.
__device__ inline void shared_writes_before_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// Register accesses of this warpgroup come before its next wgmma.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/// At most kPending of the committed groups are still under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// The compiler may not move a read of this register across.
__device__ inline void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ inline void pin(std::uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

/// Starts a copy of 16 aligned bytes to shared memory.
__device__ inline void copy_16_bytes(std::uint32_t to, const std::uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

/// At most kPending groups of copies are still under way.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace fp8lab::cuda

#endif
