#include "fp8lab/gemm/kernels.hpp"

#include "fp8lab/accumulate/accumulate.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/sum_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

/// The sum p + c as a double that rounds to binary32 as the exact sum would:
/// truncated, and with its lowest bit set where bits were lost (round to odd).
/// Needs rounding toward zero.
HWY_INLINE Vector<double> add_to_odd(Vector<double> p, Vector<double> c) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto sum = hn::Add(p, c);
  const auto lossless = hn::And(hn::Eq(hn::Sub(sum, p), c), hn::Eq(hn::Sub(sum, c), p));
  const auto odd = hn::BitCast(d, hn::Or(hn::BitCast(du, sum), hn::Set(du, std::uint64_t{1})));
  return hn::IfThenElse(lossless, sum, odd);
}

/// Binary64 to 24 significant bits, nearest even, whatever the rounding mode.
HWY_INLINE Vector<double> nearest_even_24(Vector<double> x) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<29>(bits), hn::Set(du, std::uint64_t{1}));
  const auto bias = hn::Add(odd, hn::Set(du, (std::uint64_t{1} << 28) - 1));
  const auto kept = hn::Set(du, ~((std::uint64_t{1} << 29) - 1));
  return hn::BitCast(d, hn::And(hn::Add(bits, bias), kept));
}

template <int R>
HWY_INLINE void exact_rows(const StepBlock<double>& s, const StepRounding& rounding,
                           std::int64_t step, std::int64_t row) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  Vector<double> acc[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }
  multiply_add<double, R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                          s.b + step * s.terms * width, acc);
  const auto kept = hn::Set(du, ~((std::uint64_t{1} << (52 - rounding.output_fraction_bits)) - 1));
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      double* state = s.state + (row + r) * width + v * lanes;
      const auto sum = add_to_odd(acc[r][v], hn::Load(d, state));
      const auto next = rounding.nearest_even ? nearest_even_24(sum)
                                              : hn::BitCast(d, hn::And(hn::BitCast(du, sum), kept));
      hn::Store(hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), next), d, state);
    }
  }
}

void exact_steps(const StepBlock<double>& s, const StepRounding& rounding) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) exact_rows<kRows>(s, rounding, step, row);
    for (; row < s.rows; ++row) exact_rows<1>(s, rounding, step, row);
  }
}

template <typename T, int R>
HWY_INLINE void plain_rows(const StepBlock<T>& s, std::int64_t step, std::int64_t row) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  T* state = s.state + row * width;
  Vector<T> acc[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  multiply_add<T, R>(s.terms, s.a + (step * s.rows + row) * s.terms, s.b + step * s.terms * width,
                     acc);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, state + r * width + v * lanes);
  }
}

template <typename T>
void plain(const StepBlock<T>& s) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) plain_rows<T, kRows>(s, step, row);
    for (; row < s.rows; ++row) plain_rows<T, 1>(s, step, row);
  }
}

void combine(const Combine& c, std::int64_t width) {
  const Tag<float> d;
  const auto nan = hn::BitCast(d, hn::Set(Tag<std::uint32_t>(), kCanonicalNan));
  const auto a_scale = hn::Set(d, c.a_scale);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < width; j += lanes) {
    const auto partial = hn::LoadU(d, c.partial + j);
    auto sum = hn::LoadU(d, c.final + j);
    if (c.b_scales == nullptr) {
      sum = hn::Add(sum, partial);
    } else {
      const auto b_scale = hn::LoadU(d, c.b_scales + j);
      if (c.order == ScaleOrder::product_then_fma)
        sum = hn::MulAdd(hn::Mul(a_scale, b_scale), partial, sum);
      else if (c.order == ScaleOrder::product_then_add)
        sum = hn::Add(sum, hn::Mul(hn::Mul(a_scale, b_scale), partial));
      else
        sum = hn::MulAdd(hn::Mul(partial, a_scale), b_scale, sum);
    }
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), nan, sum), d, c.final + j);
  }
}

void round_exact(const double* sum, const float* c, float* out, std::int64_t count) {
  const Tag<double> d;
  const hn::Rebind<float, Tag<double>> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto total = add_to_odd(hn::LoadU(d, sum + i), hn::PromoteTo(d, hn::LoadU(df, c + i)));
    const auto rounded = hn::DemoteTo(df, nearest_even_24(total));
    hn::StoreU(hn::IfThenElse(hn::Eq(rounded, hn::Zero(df)), hn::Zero(df), rounded), df, out + i);
  }
}

const SumKernels* sum_kernels() {
  static const SumKernels kTable{exact_steps, round_exact, plain<float>, plain<double>, combine};
  return &kTable;
}

#else
const SumKernels* sum_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/gemm/target_cases.hpp"

namespace fp8lab::gemm_detail {

const SumKernels* sum_kernels(Target target) {
  switch (target) {
    FP8LAB_TARGET_CASES(sum_kernels)
    default:
      return nullptr;
  }
}

}  // namespace fp8lab::gemm_detail
#endif
