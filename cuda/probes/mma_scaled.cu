// mma.sync with block scales: sm_120a, and toolkits that know it (CUDA 12.8).

#include "probes/mma_scaled_kernel.cuh"
#include "probes/probe.hpp"

#define FP8LAB_HAS_BLOCK_SCALES \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))

namespace fp8lab::cuda {

#if FP8LAB_HAS_BLOCK_SCALES
namespace {

// Selectors 0: the scales' low bytes, and the first threads of four.
#define FP8LAB_MMA_SCALED(NAME, PTX, SCALES)                                                  \
  struct NAME {                                                                               \
    static constexpr int kScales = SCALES;                                                    \
    static __device__ void issue(float (&d)[4], const std::uint32_t (&a)[4],                  \
                                 const std::uint32_t (&b)[2], std::uint32_t scale_a,          \
                                 std::uint32_t scale_b) {                                     \
      asm volatile("mma.sync.aligned." PTX                                                    \
                   " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, " \
                   "{%12, %12}, {%11}, {%12, %12};\n"                                         \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),        \
                     "r"(scale_a), "r"(scale_b), "h"(std::uint16_t{0}));                      \
    }                                                                                         \
  }
#define FP8LAB_MXF8F6F4(NAME, TYPES)                                                             \
  FP8LAB_MMA_SCALED(                                                                             \
      NAME, "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32." TYPES ".f32.ue8m0", \
      1)

FP8LAB_MXF8F6F4(MxE4E4, "e4m3.e4m3");
FP8LAB_MXF8F6F4(MxE5E5, "e5m2.e5m2");
FP8LAB_MXF8F6F4(MxE4E5, "e4m3.e5m2");
FP8LAB_MXF8F6F4(MxE5E4, "e5m2.e4m3");
FP8LAB_MXF8F6F4(MxF4F4, "e2m1.e2m1");
FP8LAB_MXF8F6F4(MxE4F4, "e4m3.e2m1");
FP8LAB_MXF8F6F4(MxF4E4, "e2m1.e4m3");
FP8LAB_MXF8F6F4(MxF6F6, "e2m3.e2m3");
FP8LAB_MXF8F6F4(MxG6G6, "e3m2.e3m2");
FP8LAB_MMA_SCALED(
    Nv4, "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 4);
FP8LAB_MMA_SCALED(
    Mx4, "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 2);

const NamedKernel kKernels[] = {
    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e4m3", mma_scaled_probe<MxE4E4>},
    {"mma.m16n8k32.mxf8f6f4.f32.e5m2.e5m2", mma_scaled_probe<MxE5E5>},
    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e5m2", mma_scaled_probe<MxE4E5>},
    {"mma.m16n8k32.mxf8f6f4.f32.e5m2.e4m3", mma_scaled_probe<MxE5E4>},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m1.e2m1", mma_scaled_probe<MxF4F4>},
    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e2m1", mma_scaled_probe<MxE4F4>},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m1.e4m3", mma_scaled_probe<MxF4E4>},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m3.e2m3", mma_scaled_probe<MxF6F6>},
    {"mma.m16n8k32.mxf8f6f4.f32.e3m2.e3m2", mma_scaled_probe<MxG6G6>},
    {"mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3", mma_scaled_probe<Nv4>},
    {"mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0", mma_scaled_probe<Mx4>},
};

}  // namespace

std::span<const NamedKernel> mma_scaled_kernels() { return kKernels; }
#else
std::span<const NamedKernel> mma_scaled_kernels() { return {}; }
#endif

}  // namespace fp8lab::cuda
