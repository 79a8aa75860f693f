// mma.sync on FP8: sm_89 and later, as an instruction or as what ptxas makes of it.

#include "probes/mma.cuh"
#include "probes/probe.hpp"

namespace fp8lab::cuda {
namespace {

FP8LAB_MMA_F32(E4E4, "m16n8k32.row.col.f32.e4m3.e4m3.f32");
FP8LAB_MMA_F32(E5E5, "m16n8k32.row.col.f32.e5m2.e5m2.f32");
FP8LAB_MMA_F32(E4E5, "m16n8k32.row.col.f32.e4m3.e5m2.f32");
FP8LAB_MMA_F32(E5E4, "m16n8k32.row.col.f32.e5m2.e4m3.f32");

// FP16 sums of FP8 came to mma.sync with PTX ISA 8.7.
#define FP8LAB_NVCC_12_8 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#if FP8LAB_NVCC_12_8
FP8LAB_MMA_F16(HalfE4E4, "m16n8k32.row.col.f16.e4m3.e4m3.f16");
FP8LAB_MMA_F16(HalfE5E5, "m16n8k32.row.col.f16.e5m2.e5m2.f16");
FP8LAB_MMA_F16(HalfE4E5, "m16n8k32.row.col.f16.e4m3.e5m2.f16");
FP8LAB_MMA_F16(HalfE5E4, "m16n8k32.row.col.f16.e5m2.e4m3.f16");
#endif

const NamedKernel kKernels[] = {
    {"mma.m16n8k32.f32.e4m3.e4m3", mma_probe<E4E4>},
    {"mma.m16n8k32.f32.e5m2.e5m2", mma_probe<E5E5>},
    {"mma.m16n8k32.f32.e4m3.e5m2", mma_probe<E4E5>},
    {"mma.m16n8k32.f32.e5m2.e4m3", mma_probe<E5E4>},
#if FP8LAB_NVCC_12_8
    {"mma.m16n8k32.f16.e4m3.e4m3", mma_probe<HalfE4E4>},
    {"mma.m16n8k32.f16.e5m2.e5m2", mma_probe<HalfE5E5>},
    {"mma.m16n8k32.f16.e4m3.e5m2", mma_probe<HalfE4E5>},
    {"mma.m16n8k32.f16.e5m2.e4m3", mma_probe<HalfE5E4>},
#endif
};

}  // namespace

std::span<const NamedKernel> mma_fp8_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
