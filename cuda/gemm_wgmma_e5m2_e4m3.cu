#include "gemm_wgmma.cuh"

namespace fp8lab::cuda {
namespace {
FP8LAB_WGMMA_N128(Instruction, 32, "e5m2.e4m3", "");
}  // namespace

void launch_wgmma_e5m2_e4m3(const GemmArguments& arguments) {
  launch_intervals<Instruction, false>(arguments);
}

}  // namespace fp8lab::cuda
