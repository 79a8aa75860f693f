#include "gemm_wgmma.cuh"

namespace fp8lab::cuda {
namespace {
FP8LAB_WGMMA_N128(Instruction, 32, "e4m3.e5m2", "");
}  // namespace

void launch_wgmma_e4m3_e5m2(const GemmArguments& arguments) {
  launch_intervals<Instruction, false>(arguments);
}

}  // namespace fp8lab::cuda
