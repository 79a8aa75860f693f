#include "bench_kernels.hpp"

#include "check.cuh"

namespace fp8lab::cuda {
namespace {

constexpr int kChains = 8;
constexpr int kUnroll = 8;

__global__ void __launch_bounds__(256) fma_peak(int rounds, float* sink) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float factor = 1.0F + 1e-6F * static_cast<float>(threadIdx.x);
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int step = 0; step < kUnroll; ++step)
#pragma unroll
      for (int i = 0; i < kChains; ++i) sums[i] = __fmaf_rn(sums[i], factor, 0.5F);
  float total = 0.0F;
  for (int i = 0; i < kChains; ++i) total += sums[i];
  sink[static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x] = total;
}

}  // namespace

double launch_fma_peak(int blocks, int rounds, float* sink) {
  fma_peak<<<blocks, 256>>>(rounds, sink);
  FP8LAB_CUDA_CHECK_LAUNCH("fma_peak");
  return 256.0 * blocks * rounds * kUnroll * kChains;
}

}  // namespace fp8lab::cuda
