// wgmma on FP8 with FP16 sums: all pairs of inputs, A from both places. No published model
// of its own: mma.sync's is the prediction.

#include "probes/probe.hpp"
#include "probes/wgmma.cuh"

namespace fp8lab::cuda {
namespace {

FP8LAB_WGMMA_F16_SHARED(SharedE4E4, "m64n64k32.f16.e4m3.e4m3", "");
FP8LAB_WGMMA_F16_SHARED(SharedE5E5, "m64n64k32.f16.e5m2.e5m2", "");
FP8LAB_WGMMA_F16_SHARED(SharedE4E5, "m64n64k32.f16.e4m3.e5m2", "");
FP8LAB_WGMMA_F16_SHARED(SharedE5E4, "m64n64k32.f16.e5m2.e4m3", "");
FP8LAB_WGMMA_F16_REGISTER(RegisterE4E4, "m64n64k32.f16.e4m3.e4m3", "");
FP8LAB_WGMMA_F16_REGISTER(RegisterE5E5, "m64n64k32.f16.e5m2.e5m2", "");
FP8LAB_WGMMA_F16_REGISTER(RegisterE4E5, "m64n64k32.f16.e4m3.e5m2", "");
FP8LAB_WGMMA_F16_REGISTER(RegisterE5E4, "m64n64k32.f16.e5m2.e4m3", "");

const NamedKernel kKernels[] = {
    {"wgmma.m64n64k32.f16.e4m3.e4m3.shared", wgmma_probe<SharedE4E4>},
    {"wgmma.m64n64k32.f16.e5m2.e5m2.shared", wgmma_probe<SharedE5E5>},
    {"wgmma.m64n64k32.f16.e4m3.e5m2.shared", wgmma_probe<SharedE4E5>},
    {"wgmma.m64n64k32.f16.e5m2.e4m3.shared", wgmma_probe<SharedE5E4>},
    {"wgmma.m64n64k32.f16.e4m3.e4m3.registers", wgmma_probe<RegisterE4E4>},
    {"wgmma.m64n64k32.f16.e5m2.e5m2.registers", wgmma_probe<RegisterE5E5>},
    {"wgmma.m64n64k32.f16.e4m3.e5m2.registers", wgmma_probe<RegisterE4E5>},
    {"wgmma.m64n64k32.f16.e5m2.e4m3.registers", wgmma_probe<RegisterE5E4>},
};

}  // namespace

std::span<const NamedKernel> wgmma_half_output_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
