// mma.sync on FP16, BF16 and TF32: sm_80 and later.

#include "probes/mma.cuh"
#include "probes/probe.hpp"

namespace fp8lab::cuda {
namespace {

FP8LAB_MMA_F32(F16, "m16n8k16.row.col.f32.f16.f16.f32");
FP8LAB_MMA_F16(HalfF16, "m16n8k16.row.col.f16.f16.f16.f16");
FP8LAB_MMA_F32(Bf16, "m16n8k16.row.col.f32.bf16.bf16.f32");
FP8LAB_MMA_F32(Tf32, "m16n8k8.row.col.f32.tf32.tf32.f32");

const NamedKernel kKernels[] = {
    {"mma.m16n8k16.f32.f16.f16", mma_probe<F16>},
    {"mma.m16n8k16.f16.f16.f16", mma_probe<HalfF16>},
    {"mma.m16n8k16.f32.bf16.bf16", mma_probe<Bf16>},
    {"mma.m16n8k8.f32.tf32.tf32", mma_probe<Tf32>},
};

}  // namespace

std::span<const NamedKernel> mma_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
