// Sparse mma.sync on FP16 and BF16: sm_80 and later.

#include "probes/mma.cuh"
#include "probes/probe.hpp"

namespace fp8lab::cuda {
namespace {

FP8LAB_MMA_SPARSE_F32(F16, "m16n8k32.row.col.f32.f16.f16.f32", 2, 0x7bffu);
FP8LAB_MMA_SPARSE_F32(Bf16, "m16n8k32.row.col.f32.bf16.bf16.f32", 2, 0x7f7fu);

const NamedKernel kKernels[] = {
    {"mma.sp.m16n8k32.f32.f16.f16", mma_sparse_probe<F16>},
    {"mma.sp.m16n8k32.f32.bf16.bf16", mma_sparse_probe<Bf16>},
};

}  // namespace

std::span<const NamedKernel> mma_sparse_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
