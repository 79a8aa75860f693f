#include "fp8lab/linear/multiply_kernel.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/linear/multiply_kernel.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

#if defined(__clang__)
#define FP8LAB_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FP8LAB_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8lab::train::detail {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// Sums that stay in registers: 16 of 32 vectors, or 8 of 16.
constexpr int kRows = HWY_TARGET == HWY_AVX2 ? 4 : 8;
constexpr int kVectors = 2;

void block(std::int64_t k, const float* a, const float* b, float* d, std::int64_t d_stride) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  hn::Vec<decltype(tag)> sum[kRows][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < kRows; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(tag, d + r * d_stride + v * lanes);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    const auto b0 = hn::LoadU(tag, b + i * kVectors * lanes);
    const auto b1 = hn::LoadU(tag, b + i * kVectors * lanes + lanes);
    FP8LAB_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(tag, a[i * kRows + r]);
      sum[r][0] = hn::MulAdd(x, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(x, b1, sum[r][1]);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < kRows; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], tag, d + r * d_stride + v * lanes);
  }
}

MultiplyKernel kernel() {
  const hn::ScalableTag<float> tag;
  return {kRows, kVectors * static_cast<std::int64_t>(hn::Lanes(tag)), block};
}

#else
MultiplyKernel kernel() { return {}; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::train::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::train::detail {
namespace {

constexpr std::int64_t kScalarSize = 4;

void scalar_block(std::int64_t k, const float* a, const float* b, float* d, std::int64_t d_stride) {
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t r = 0; r < kScalarSize; ++r)
      for (std::int64_t c = 0; c < kScalarSize; ++c) {
        float& sum = d[r * d_stride + c];
        sum = std::fma(a[i * kScalarSize + r], b[i * kScalarSize + c], sum);
      }
}

}  // namespace

MultiplyKernel multiply_kernel(Target target) {
  switch (target) {
    FP8LAB_TARGET_CASES(kernel)
    default:
      return {kScalarSize, kScalarSize, scalar_block};
  }
}

}  // namespace fp8lab::train::detail
#endif
