// The product on the tensor cores: the source that has the inputs' instruction, then the scales of
// whole sums.

#include "gemm_wgmma.hpp"

#include <string>

#include "check.cuh"
#include "gemm_finish_kernel.cuh"
#include "gemm_launch.hpp"

namespace fp8lab::cuda {
namespace {

void launch_product(const GemmArguments& arguments, FormatId a, FormatId b) {
  const auto is_fp8 = [](FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; };
  if (a == FormatId::bf16 && b == FormatId::bf16) return launch_wgmma_bf16(arguments);
  require(is_fp8(a) && is_fp8(b), "format", "e4m3fn or e5m2 for a and b, or bf16 for both",
          std::string(format(a).name) + " and " + std::string(format(b).name));
  if (a == FormatId::e4m3fn)
    b == FormatId::e4m3fn ? launch_wgmma_e4m3(arguments) : launch_wgmma_e4m3_e5m2(arguments);
  else
    b == FormatId::e5m2 ? launch_wgmma_e5m2(arguments) : launch_wgmma_e5m2_e4m3(arguments);
}

}  // namespace

void launch_gemm_wgmma(const GemmArguments& arguments, FormatId a, FormatId b) {
  launch_product(arguments, a, b);
  if (!arguments.scaled_at_end) return;
  finish_all<<<1024, 256>>>(arguments);
  FP8LAB_CUDA_CHECK_LAUNCH("finish_all");
}

}  // namespace fp8lab::cuda
