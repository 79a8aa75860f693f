// wgmma on FP16, BF16 and TF32 with binary32 sums, and on FP16 with FP16 sums.

#include "probes/probe.hpp"
#include "probes/wgmma.cuh"

namespace fp8lab::cuda {
namespace {

// 16-bit operands say whether they are transposed: A only where it is in shared memory.
FP8LAB_WGMMA_F32_SHARED(SharedF16, "m64n64k16.f32.f16.f16", ", 0, 0");
FP8LAB_WGMMA_F32_SHARED(SharedBf16, "m64n64k16.f32.bf16.bf16", ", 0, 0");
FP8LAB_WGMMA_F32_SHARED(SharedTf32, "m64n64k8.f32.tf32.tf32", "");
FP8LAB_WGMMA_F32_REGISTER(RegisterF16, "m64n64k16.f32.f16.f16", ", 0");
FP8LAB_WGMMA_F32_REGISTER(RegisterBf16, "m64n64k16.f32.bf16.bf16", ", 0");
FP8LAB_WGMMA_F32_REGISTER(RegisterTf32, "m64n64k8.f32.tf32.tf32", "");

FP8LAB_WGMMA_F16_SHARED(SharedF16Half, "m64n64k16.f16.f16.f16", ", 0, 0");
FP8LAB_WGMMA_F16_REGISTER(RegisterF16Half, "m64n64k16.f16.f16.f16", ", 0");

const NamedKernel kKernels[] = {
    {"wgmma.m64n64k16.f32.f16.f16.shared", wgmma_probe<SharedF16>},
    {"wgmma.m64n64k16.f32.bf16.bf16.shared", wgmma_probe<SharedBf16>},
    {"wgmma.m64n64k8.f32.tf32.tf32.shared", wgmma_probe<SharedTf32>},
    {"wgmma.m64n64k16.f32.f16.f16.registers", wgmma_probe<RegisterF16>},
    {"wgmma.m64n64k16.f32.bf16.bf16.registers", wgmma_probe<RegisterBf16>},
    {"wgmma.m64n64k8.f32.tf32.tf32.registers", wgmma_probe<RegisterTf32>},
    {"wgmma.m64n64k16.f16.f16.f16.shared", wgmma_probe<SharedF16Half>},
    {"wgmma.m64n64k16.f16.f16.f16.registers", wgmma_probe<RegisterF16Half>},
};

}  // namespace

std::span<const NamedKernel> wgmma_wide_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
