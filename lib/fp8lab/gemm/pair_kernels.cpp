#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/pair_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

/// Whether the processor itself makes subnormal results zeros of their sign, and changes no
/// operand: other processors' modes do both.
constexpr bool kFlushesByMode = HWY_ARCH_X86 != 0;

/// A subnormal number as a zero of its sign.
HWY_INLINE Vector<float> flushed(Vector<float> x) {
  if constexpr (kFlushesByMode) return x;
  const Tag<float> d;
  const auto zero = hn::CopySign(hn::Zero(d), x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-126F)), zero, x);
}

/// One row of one step: c = c + (p0 + p1), or c + ((p0 + p1) + (p2 + p3)), for its groups.
template <int kGroup>
HWY_INLINE void flushed_row(const StepBlock<float>& s, std::int64_t step, std::int64_t row) {
  const Tag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const float* a = s.a + (step * s.rows + row) * s.terms;
  const float* b = s.b + step * s.terms * width;
  float* state = s.state + row * width;
  Vector<float> c[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) c[v] = hn::Load(d, state + v * lanes);
  for (std::int64_t k = 0; k < s.terms; k += kGroup) {
    Vector<float> value[kGroup];
    FP8LAB_UNROLL
    for (int t = 0; t < kGroup; ++t) value[t] = hn::Set(d, a[k + t]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const float* column = b + k * width + v * lanes;
      Vector<float> p[kGroup];
      FP8LAB_UNROLL
      for (int t = 0; t < kGroup; ++t)
        p[t] = flushed(hn::Mul(value[t], hn::Load(d, column + t * width)));
      auto group = flushed(hn::Add(p[0], p[1]));
      if constexpr (kGroup == 4) group = flushed(hn::Add(group, flushed(hn::Add(p[2], p[3]))));
      c[v] = flushed(hn::Add(c[v], group));
    }
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) hn::Store(c[v], d, state + v * lanes);
}

template <int kGroup>
HWY_INLINE void flushed_rows(const StepBlock<float>& s) {
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t row = 0; row < s.rows; ++row) flushed_row<kGroup>(s, step, row);
}

void flushed_pairs(const StepBlock<float>& from, std::int64_t group) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  if (group == 4)
    flushed_rows<4>(s);
  else
    flushed_rows<2>(s);
}

const PairKernels* pair_kernels() {
  static const PairKernels kTable{flushed_pairs, kFlushesByMode};
  return &kTable;
}

#else
const PairKernels* pair_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(PairKernels, pair_kernels)

}  // namespace fp8lab::gemm_detail
#endif
