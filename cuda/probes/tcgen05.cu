// tcgen05.mma of one thread block on FP8, FP16, BF16 and TF32 with binary32 sums. Needs sm_100a,
// and a toolkit that knows it.

#include "probes/probe.hpp"

#define FP8LAB_HAS_TCGEN05 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))

#if FP8LAB_HAS_TCGEN05
#include "probes/tcgen05_kernel.cuh"
#endif

namespace fp8lab::cuda {

#if FP8LAB_HAS_TCGEN05
namespace {

// One thread issues; the sums go on from what tensor memory holds.
#define FP8LAB_TCGEN05(NAME, KIND, A, B)                                                \
  struct NAME {                                                                         \
    static constexpr int kA = A;                                                        \
    static constexpr int kB = B;                                                        \
    static __device__ void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b,     \
                                 std::uint32_t instruction) {                           \
      asm volatile(                                                                     \
          "{\n.reg .pred p;\nsetp.ne.u32 p, 1, 0;\n"                                    \
          "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, p;\n}\n" ::"r"(d), \
          "l"(a), "l"(b), "r"(instruction)                                              \
          : "memory");                                                                  \
    }                                                                                   \
  }

FP8LAB_TCGEN05(E44, "f8f6f4", 0, 0);
FP8LAB_TCGEN05(E55, "f8f6f4", 1, 1);
FP8LAB_TCGEN05(E45, "f8f6f4", 0, 1);
FP8LAB_TCGEN05(E54, "f8f6f4", 1, 0);
FP8LAB_TCGEN05(Wide00, "f16", 0, 0);
FP8LAB_TCGEN05(Wide11, "f16", 1, 1);
FP8LAB_TCGEN05(Tf22, "tf32", 2, 2);

const NamedKernel kKernels[] = {
    {"tcgen05.m128n64k32.f32.e4m3.e4m3", tcgen05_probe<E44>},
    {"tcgen05.m128n64k32.f32.e5m2.e5m2", tcgen05_probe<E55>},
    {"tcgen05.m128n64k32.f32.e4m3.e5m2", tcgen05_probe<E45>},
    {"tcgen05.m128n64k32.f32.e5m2.e4m3", tcgen05_probe<E54>},
    {"tcgen05.m128n64k16.f32.f16.f16", tcgen05_probe<Wide00>},
    {"tcgen05.m128n64k16.f32.bf16.bf16", tcgen05_probe<Wide11>},
    {"tcgen05.m128n64k8.f32.tf32.tf32", tcgen05_probe<Tf22>},
};

}  // namespace

std::span<const NamedKernel> tcgen05_kernels() { return kKernels; }
#else
std::span<const NamedKernel> tcgen05_kernels() { return {}; }
#endif

}  // namespace fp8lab::cuda
