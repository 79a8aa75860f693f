// Launches of the product without tensor cores, bit for bit what the model gives.

#include "check.cuh"
#include "emulated_model.hpp"
#include "gemm_e4m3_kernel.cuh"
#include "gemm_emulated_kernel.cuh"
#include "gemm_launch.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kMostGridRows = 65535;

template <int kTerms>
void launch_e4m3(const GemmArguments& g, const EmulatedModel& model, CUstream_st* stream) {
  using Shape = E4m3Shape<kTerms>;
  // The limit is the kernel's, for all threads of the host: it is the same in each call, so that no
  // thread lowers it before another one's launch.
  FP8LAB_CUDA_CHECK(cudaFuncSetAttribute(multiply_e4m3<Shape>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         e4m3_shared_bytes<Shape>(true)));
  const int shared = e4m3_shared_bytes<Shape>(g.promotion_interval > 0);
  const dim3 grid((g.n + Shape::kColumns - 1) / Shape::kColumns,
                  (g.m + Shape::kRows - 1) / Shape::kRows);
  multiply_e4m3<Shape><<<grid, Shape::kThreads, shared, stream>>>(g, model);
}

}  // namespace

void launch_gemm_emulated(const GemmArguments& g, const AccumulatorModel& wanted, FormatId a,
                          FormatId b, CUstream_st* stream) {
  const EmulatedModel model = emulated_model(wanted);
  if (a == FormatId::e4m3fn && b == FormatId::e4m3fn && e4m3_kernel_takes(g, model)) {
    if (model.terms == 16)
      launch_e4m3<16>(g, model, stream);
    else
      launch_e4m3<32>(g, model, stream);
    FP8LAB_CUDA_CHECK_LAUNCH("gemm_emulated");
    return;
  }
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
