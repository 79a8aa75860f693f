#pragma once
// The ordering that wgmma asks for, as PTX: who may read what, and when.

#include <cstdint>

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

/// All committed groups are complete.
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

}  // namespace fp8lab::cuda
