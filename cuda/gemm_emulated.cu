// Launches of the product without tensor cores, bit for bit what the model gives.

#include "check.cuh"
#include "emulated_model.hpp"
#include "gemm_emulated_kernel.cuh"
#include "gemm_launch.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kMostGridRows = 65535;

}  // namespace

void launch_gemm_emulated(const GemmArguments& g, const AccumulatorModel& wanted, FormatId a,
                          FormatId b, CUstream_st* stream) {
  const EmulatedModel model = emulated_model(wanted);
  const TileFormats formats{emulated_format(a), emulated_format(b)};
  const bool fp8 = formats.a.storage_bits == 8 && formats.b.storage_bits == 8 &&
                   formats.a.exponent_bits + formats.a.mantissa_bits == 7 &&
                   formats.b.exponent_bits + formats.b.mantissa_bits == 7;
  if (fp8 && model.terms % 4 == 0 && kPaddedBytes % model.terms == 0 && model.terms <= kMaxTerms &&
      fma_path_fits(model)) {
    FP8LAB_CUDA_CHECK(cudaFuncSetAttribute(
        multiply_by_fma, cudaFuncAttributeMaxDynamicSharedMemorySize, kStepTileBytes));
    const dim3 grid((g.n + kTileColumns - 1) / kTileColumns, (g.m + kTileRows - 1) / kTileRows);
    multiply_by_fma<<<grid, kThreads, kStepTileBytes, stream>>>(g, model, formats);
  } else {
    const dim3 grid((g.n + 63) / 64, min(g.m, kMostGridRows));
    multiply_by_integers<<<grid, 64, 0, stream>>>(g, model, formats);
  }
  FP8LAB_CUDA_CHECK_LAUNCH("gemm_emulated");
}

}  // namespace fp8lab::cuda
