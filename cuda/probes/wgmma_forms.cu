// Other forms of wgmma on FP8, FP16 and BF16: 256 columns, negated operands, sparse A.

#include "probes/probe.hpp"
#include "probes/wgmma.cuh"

namespace fp8lab::cuda {
namespace {

FP8LAB_WGMMA_N256_SHARED(WideE4E4, "m64n256k32.f32.e4m3.e4m3", "");
FP8LAB_WGMMA_NEGATED(NegatedA, "m64n64k32.f32.e4m3.e4m3", 0x80808080u, 0u, "-1, 1");
FP8LAB_WGMMA_NEGATED(NegatedB, "m64n64k32.f32.e4m3.e4m3", 0u, 0x80808080u, "1, -1");
FP8LAB_WGMMA_NEGATED(NegatedF16, "m64n64k16.f32.f16.f16", 0x80008000u, 0u, "-1, 1, 0, 0");
// The largest finite values where no element of B may be taken.
FP8LAB_WGMMA_SPARSE(SparseE4E4, "m64n64k64.f32.e4m3.e4m3", 1, 0x7eu, "");
FP8LAB_WGMMA_SPARSE(SparseE5E5, "m64n64k64.f32.e5m2.e5m2", 1, 0x7bu, "");
FP8LAB_WGMMA_SPARSE(SparseF16, "m64n64k32.f32.f16.f16", 2, 0x7bffu, ", 0, 0");

const NamedKernel kKernels[] = {
    {"wgmma.m64n256k32.f32.e4m3.e4m3.shared", wgmma_probe<WideE4E4>},
    {"wgmma.m64n64k32.f32.e4m3.e4m3.shared.negated_a", wgmma_probe<NegatedA>},
    {"wgmma.m64n64k32.f32.e4m3.e4m3.shared.negated_b", wgmma_probe<NegatedB>},
    {"wgmma.m64n64k16.f32.f16.f16.shared.negated_a", wgmma_probe<NegatedF16>},
    {"wgmma.sp.m64n64k64.f32.e4m3.e4m3.shared", wgmma_probe<SparseE4E4>},
    {"wgmma.sp.m64n64k64.f32.e5m2.e5m2.shared", wgmma_probe<SparseE5E5>},
    {"wgmma.sp.m64n64k32.f32.f16.f16.shared", wgmma_probe<SparseF16>},
};

}  // namespace

std::span<const NamedKernel> wgmma_form_kernels() { return kKernels; }

}  // namespace fp8lab::cuda
