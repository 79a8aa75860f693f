#pragma once
// Tensor memory, barriers and the ordering that tcgen05 asks for, as PTX.

#include <cstdint>

// On the host a test brings its own.
#if defined(__CUDACC__)

namespace fp8lab::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Waits until phase `parity` of the barrier has ended.
__device__ inline void wait_for(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
}

/// Eight columns of this warp's 32 lanes.
__device__ inline void store_columns(std::uint32_t address, const std::uint32_t (&x)[8]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};\n" ::"r"(
          address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7])
      : "memory");
}
__device__ inline void load_columns(std::uint32_t (&x)[8], std::uint32_t address) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]),
                 "=r"(x[7])
               : "r"(address)
               : "memory");
  asm volatile("tcgen05.wait::ld.sync.aligned;\n" ::: "memory");
}

template <int kColumns>
__device__ inline void tcgen05_allocate(std::uint32_t* where) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n" ::"r"(
                   shared_address(where)),
               "n"(kColumns)
               : "memory");
}
template <int kColumns>
__device__ inline void tcgen05_free(std::uint32_t address) {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" ::: "memory");
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;\n" ::"r"(address),
               "n"(kColumns)
               : "memory");
}

__device__ inline void init_barrier(std::uint32_t barrier) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;\n" ::"r"(
          barrier)
      : "memory");
}
/// The barrier's phase ends when everything that this thread issued has.
__device__ inline void commit(std::uint32_t barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];\n" ::"r"(barrier)
      : "memory");
}

__device__ inline void fence_before_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;\n" ::: "memory");
}
__device__ inline void fence_after_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;\n" ::: "memory");
}
__device__ inline void wait_for_stores() {
  asm volatile("tcgen05.wait::st.sync.aligned;\n" ::: "memory");
}
/// What was written the ordinary way is read by the tensor core in its own.
__device__ inline void shared_writes_before_tcgen05() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

}  // namespace fp8lab::cuda

#endif
