// tcgen05.mma of one thread block on FP8, FP16, BF16 and TF32, with binary32 and FP16 sums, and
// with block scales on FP8, FP6 and FP4; both with negated operands and with a sparse A. Needs
// sm_100a, and a toolkit that knows it.

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
#define FP8LAB_TCGEN05_FORM(NAME, KIND, HALF_SUMS, A, B, FLIP_A, FLIP_B)                \
  struct NAME : Tcgen05Defaults {                                                       \
    static constexpr int kA = A;                                                        \
    static constexpr int kB = B;                                                        \
    static constexpr bool kHalfSums = HALF_SUMS;                                        \
    static constexpr std::uint32_t kFlipA = FLIP_A;                                     \
    static constexpr std::uint32_t kFlipB = FLIP_B;                                     \
    static __device__ void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b,     \
                                 std::uint32_t instruction) {                           \
      asm volatile(                                                                     \
          "{\n.reg .pred p;\nsetp.ne.u32 p, 1, 0;\n"                                    \
          "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, p;\n}\n" ::"r"(d), \
          "l"(a), "l"(b), "r"(instruction)                                              \
          : "memory");                                                                  \
    }                                                                                   \
  }

#define FP8LAB_TCGEN05(NAME, KIND, HALF_SUMS, A, B) \
  FP8LAB_TCGEN05_FORM(NAME, KIND, HALF_SUMS, A, B, 0u, 0u)

// The same with a sparse A, whose metadata is in tensor memory. ELEMENT: bytes of an element;
// FILLER: of B where the instruction must not look.
#define FP8LAB_TCGEN05_SPARSE(NAME, KIND, A, B, ELEMENT, FILLER)                                 \
  struct NAME : Tcgen05Defaults {                                                                \
    static constexpr int kA = A;                                                                 \
    static constexpr int kB = B;                                                                 \
    static constexpr int kSparseElement = ELEMENT;                                               \
    static constexpr std::uint32_t kFiller = FILLER;                                             \
    static __device__ void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b,              \
                                 std::uint32_t instruction, std::uint32_t metadata) {            \
      asm volatile(                                                                              \
          "{\n.reg .pred p;\nsetp.ne.u32 p, 1, 0;\n"                                             \
          "tcgen05.mma.sp.cta_group::1.kind::" KIND " [%0], %1, %2, [%4], %3, p;\n}\n" ::"r"(d), \
          "l"(a), "l"(b), "r"(instruction), "r"(metadata)                                        \
          : "memory");                                                                           \
    }                                                                                            \
  }

// The same with block scales: SCALES a row, of type TYPE (0 UE4M3, 1 UE8M0).
#define FP8LAB_TCGEN05_SCALED_FORM(NAME, KIND, SCALES, TYPE, A, B, FLIP_A, FLIP_B)  \
  struct NAME : Tcgen05Defaults {                                                   \
    static constexpr int kA = A;                                                    \
    static constexpr int kB = B;                                                    \
    static constexpr int kScales = SCALES;                                          \
    static constexpr int kScaleType = TYPE;                                         \
    static constexpr std::uint32_t kFlipA = FLIP_A;                                 \
    static constexpr std::uint32_t kFlipB = FLIP_B;                                 \
    static __device__ void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b, \
                                 std::uint32_t instruction, std::uint32_t scale_a,  \
                                 std::uint32_t scale_b) {                           \
      asm volatile(                                                                 \
          "{\n.reg .pred p;\nsetp.ne.u32 p, 1, 0;\n"                                \
          "tcgen05.mma.cta_group::1.kind::" KIND ".block_scale.scale_vec::" #SCALES \
          "X [%0], %1, %2, %3, [%4], [%5], p;\n}\n" ::"r"(d),                       \
          "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b)              \
          : "memory");                                                              \
    }                                                                               \
  }

#define FP8LAB_TCGEN05_SCALED(NAME, KIND, SCALES, TYPE, A, B) \
  FP8LAB_TCGEN05_SCALED_FORM(NAME, KIND, SCALES, TYPE, A, B, 0u, 0u)

// FP8 with a scale a row and a sparse A: one scale for all 64 places of a row.
#define FP8LAB_TCGEN05_SPARSE_SCALED(NAME, A, B, FILLER)                              \
  struct NAME : Tcgen05Defaults {                                                     \
    static constexpr int kA = A;                                                      \
    static constexpr int kB = B;                                                      \
    static constexpr int kScales = 1;                                                 \
    static constexpr int kScaleType = 1;                                              \
    static constexpr int kSparseElement = 1;                                          \
    static constexpr std::uint32_t kFiller = FILLER;                                  \
    static __device__ void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b,   \
                                 std::uint32_t instruction, std::uint32_t metadata,   \
                                 std::uint32_t scale_a, std::uint32_t scale_b) {      \
      asm volatile(                                                                   \
          "{\n.reg .pred p;\nsetp.ne.u32 p, 1, 0;\n"                                  \
          "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "     \
          "[%0], %1, %2, [%4], %3, [%5], [%6], p;\n}\n" ::"r"(d),                     \
          "l"(a), "l"(b), "r"(instruction), "r"(metadata), "r"(scale_a), "r"(scale_b) \
          : "memory");                                                                \
    }                                                                                 \
  }

FP8LAB_TCGEN05(E4M3E4M3, "f8f6f4", false, 0, 0);
FP8LAB_TCGEN05(E4M3E5M2, "f8f6f4", false, 0, 1);
FP8LAB_TCGEN05(E5M2E4M3, "f8f6f4", false, 1, 0);
FP8LAB_TCGEN05(E5M2E5M2, "f8f6f4", false, 1, 1);
FP8LAB_TCGEN05(HalfE4M3E4M3, "f8f6f4", true, 0, 0);
FP8LAB_TCGEN05(HalfE4M3E5M2, "f8f6f4", true, 0, 1);
FP8LAB_TCGEN05(HalfE5M2E4M3, "f8f6f4", true, 1, 0);
FP8LAB_TCGEN05(HalfE5M2E5M2, "f8f6f4", true, 1, 1);
FP8LAB_TCGEN05(F16, "f16", false, 0, 0);
FP8LAB_TCGEN05(HalfF16, "f16", true, 0, 0);
FP8LAB_TCGEN05(Bf16, "f16", false, 1, 1);
FP8LAB_TCGEN05(Tf32, "tf32", false, 2, 2);
FP8LAB_TCGEN05_FORM(NegatedA, "f8f6f4", false, 0, 0, 0x80808080u, 0u);
FP8LAB_TCGEN05_FORM(NegatedB, "f8f6f4", false, 0, 0, 0u, 0x80808080u);
FP8LAB_TCGEN05_FORM(NegatedF16, "f16", false, 0, 0, 0x80008000u, 0u);
// The largest finite values where no element of B may be taken.
FP8LAB_TCGEN05_SPARSE(SparseE4E4, "f8f6f4", 0, 0, 1, 0x7eu);
FP8LAB_TCGEN05_SPARSE(SparseE5E5, "f8f6f4", 1, 1, 1, 0x7bu);
FP8LAB_TCGEN05_SPARSE(SparseF16, "f16", 0, 0, 2, 0x7bffu);
FP8LAB_TCGEN05_SCALED(MxE4M3E4M3, "mxf8f6f4", 1, 1, 0, 0);
FP8LAB_TCGEN05_SCALED(MxE5M2E5M2, "mxf8f6f4", 1, 1, 1, 1);
FP8LAB_TCGEN05_SCALED(MxE4M3E5M2, "mxf8f6f4", 1, 1, 0, 1);
FP8LAB_TCGEN05_SCALED(MxE5M2E4M3, "mxf8f6f4", 1, 1, 1, 0);
FP8LAB_TCGEN05_SCALED(MxE2M1E2M1, "mxf8f6f4", 1, 1, 5, 5);
FP8LAB_TCGEN05_SCALED(MxE4M3E2M1, "mxf8f6f4", 1, 1, 0, 5);
FP8LAB_TCGEN05_SCALED(MxE2M1E4M3, "mxf8f6f4", 1, 1, 5, 0);
FP8LAB_TCGEN05_SCALED(MxE2M3E2M3, "mxf8f6f4", 1, 1, 3, 3);
FP8LAB_TCGEN05_SCALED(MxE3M2E3M2, "mxf8f6f4", 1, 1, 4, 4);
FP8LAB_TCGEN05_SCALED(Nv4, "mxf4nvf4", 4, 0, 1, 1);
FP8LAB_TCGEN05_SCALED(Mx4, "mxf4nvf4", 2, 1, 1, 1);
FP8LAB_TCGEN05_SCALED_FORM(MxNegatedA, "mxf8f6f4", 1, 1, 0, 0, 0x80808080u, 0u);
FP8LAB_TCGEN05_SCALED_FORM(MxNegatedB, "mxf8f6f4", 1, 1, 0, 0, 0u, 0x80808080u);
FP8LAB_TCGEN05_SPARSE_SCALED(MxSparseE4E4, 0, 0, 0x7eu);
FP8LAB_TCGEN05_SPARSE_SCALED(MxSparseE5E5, 1, 1, 0x7bu);

const NamedKernel kKernels[] = {
    {"tcgen05.m128n64k32.f32.e4m3.e4m3", tcgen05_probe<E4M3E4M3>},
    {"tcgen05.m128n64k32.f32.e4m3.e5m2", tcgen05_probe<E4M3E5M2>},
    {"tcgen05.m128n64k32.f32.e5m2.e4m3", tcgen05_probe<E5M2E4M3>},
    {"tcgen05.m128n64k32.f32.e5m2.e5m2", tcgen05_probe<E5M2E5M2>},
    {"tcgen05.m128n64k32.f16.e4m3.e4m3", tcgen05_probe<HalfE4M3E4M3>},
    {"tcgen05.m128n64k32.f16.e4m3.e5m2", tcgen05_probe<HalfE4M3E5M2>},
    {"tcgen05.m128n64k32.f16.e5m2.e4m3", tcgen05_probe<HalfE5M2E4M3>},
    {"tcgen05.m128n64k32.f16.e5m2.e5m2", tcgen05_probe<HalfE5M2E5M2>},
    {"tcgen05.m128n64k16.f32.f16.f16", tcgen05_probe<F16>},
    {"tcgen05.m128n64k16.f16.f16.f16", tcgen05_probe<HalfF16>},
    {"tcgen05.m128n64k16.f32.bf16.bf16", tcgen05_probe<Bf16>},
    {"tcgen05.m128n64k8.f32.tf32.tf32", tcgen05_probe<Tf32>},
    {"tcgen05.m128n64k32.f32.e4m3.e4m3.negated_a", tcgen05_probe<NegatedA>},
    {"tcgen05.m128n64k32.f32.e4m3.e4m3.negated_b", tcgen05_probe<NegatedB>},
    {"tcgen05.m128n64k16.f32.f16.f16.negated_a", tcgen05_probe<NegatedF16>},
    {"tcgen05.sp.m128n64k64.f32.e4m3.e4m3", tcgen05_probe<SparseE4E4>},
    {"tcgen05.sp.m128n64k64.f32.e5m2.e5m2", tcgen05_probe<SparseE5E5>},
    {"tcgen05.sp.m128n64k32.f32.f16.f16", tcgen05_probe<SparseF16>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3", tcgen05_probe<MxE4M3E4M3>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e5m2.e5m2", tcgen05_probe<MxE5M2E5M2>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e5m2", tcgen05_probe<MxE4M3E5M2>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e5m2.e4m3", tcgen05_probe<MxE5M2E4M3>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m1.e2m1", tcgen05_probe<MxE2M1E2M1>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e2m1", tcgen05_probe<MxE4M3E2M1>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m1.e4m3", tcgen05_probe<MxE2M1E4M3>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m3.e2m3", tcgen05_probe<MxE2M3E2M3>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e3m2.e3m2", tcgen05_probe<MxE3M2E3M2>},
    {"tcgen05.m128n64k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3", tcgen05_probe<Nv4>},
    {"tcgen05.m128n64k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0", tcgen05_probe<Mx4>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3.negated_a", tcgen05_probe<MxNegatedA>},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3.negated_b", tcgen05_probe<MxNegatedB>},
    {"tcgen05.sp.m128n64k64.mxf8f6f4.f32.e4m3.e4m3", tcgen05_probe<MxSparseE4E4>},
    {"tcgen05.sp.m128n64k64.mxf8f6f4.f32.e5m2.e5m2", tcgen05_probe<MxSparseE5E5>},
};

}  // namespace

std::span<const NamedKernel> tcgen05_kernels() { return kKernels; }
#else
std::span<const NamedKernel> tcgen05_kernels() { return {}; }
#endif

}  // namespace fp8lab::cuda
