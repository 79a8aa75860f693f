#include "gemm_wgmma.cuh"

namespace fp8lab::cuda {
namespace {
// Types of 16 bits name the operands' order in memory: K first in both.
FP8LAB_WGMMA_N128(Instruction, 16, "bf16.bf16", ", 0, 0");
}  // namespace

void launch_wgmma_bf16(const GemmArguments& arguments) {
  launch_intervals<Instruction, false>(arguments);
}

}  // namespace fp8lab::cuda
