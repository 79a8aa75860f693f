// mma.sync on FP8 that only chips with an instruction for it are asked for, sm_89 and sm_120: 16
// terms, and sparse. What ptxas makes of these elsewhere says nothing new of the chip.

#include "probes/mma.cuh"
#include "probes/probe.hpp"

namespace fp8lab::cuda {
namespace {

FP8LAB_MMA_SPARSE_F32(SparseE4E4, "m16n8k64.row.col.f32.e4m3.e4m3.f32", 1, 0x7eu);
FP8LAB_MMA_SPARSE_F32(SparseE5E5, "m16n8k64.row.col.f32.e5m2.e5m2.f32", 1, 0x7bu);

// 16 terms of FP8 came with PTX ISA 8.7.
#define FP8LAB_NVCC_12_8 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#if FP8LAB_NVCC_12_8
FP8LAB_MMA_SHORT_F32(ShortE4E4, "m16n8k16.row.col.f32.e4m3.e4m3.f32");
FP8LAB_MMA_SHORT_F32(ShortE5E5, "m16n8k16.row.col.f32.e5m2.e5m2.f32");
FP8LAB_MMA_SHORT_F32(ShortE4E5, "m16n8k16.row.col.f32.e4m3.e5m2.f32");
FP8LAB_MMA_SHORT_F32(ShortE5E4, "m16n8k16.row.col.f32.e5m2.e4m3.f32");
FP8LAB_MMA_SHORT_F16(ShortHalf, "m16n8k16.row.col.f16.e4m3.e4m3.f16");
#endif

const NamedKernel kKernels[] = {
    {"mma.sp.m16n8k64.f32.e4m3.e4m3", mma_sparse_probe<SparseE4E4>},
    {"mma.sp.m16n8k64.f32.e5m2.e5m2", mma_sparse_probe<SparseE5E5>},
#if FP8LAB_NVCC_12_8
    {"mma.m16n8k16.f32.e4m3.e4m3", mma_short_probe<ShortE4E4>},
    {"mma.m16n8k16.f32.e5m2.e5m2", mma_short_probe<ShortE5E5>},
    {"mma.m16n8k16.f32.e4m3.e5m2", mma_short_probe<ShortE4E5>},
    {"mma.m16n8k16.f32.e5m2.e4m3", mma_short_probe<ShortE5E4>},
    {"mma.m16n8k16.f16.e4m3.e4m3", mma_short_probe<ShortHalf>},
#endif
};

}  // namespace

std::span<const NamedKernel> mma_fp8_own_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
