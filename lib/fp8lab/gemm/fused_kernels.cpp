#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/fused_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

HWY_INLINE hn::Vec<hn::ScalableTag<std::uint32_t>> load_exponents(
    const hn::ScalableTag<std::uint32_t> d, const std::uint8_t* from) {
  return hn::PromoteTo(d, hn::Load(hn::Rebind<std::uint8_t, decltype(d)>(), from));
}
HWY_INLINE hn::Vec<hn::ScalableTag<std::uint64_t>> load_exponents(
    const hn::ScalableTag<std::uint64_t> d, const std::uint16_t* from) {
  const hn::Rebind<std::uint32_t, decltype(d)> d32;
  return hn::PromoteTo(
      d, hn::PromoteTo(d32, hn::Load(hn::Rebind<std::uint16_t, decltype(d)>(), from)));
}

/// The exponent field of c; a subnormal binary32 c in binary64 takes part with
/// binary32's smallest exponent.
HWY_INLINE Vector<std::uint32_t> alignment_field(Vector<std::uint32_t> c) {
  return hn::And(c, hn::Set(Tag<std::uint32_t>(), kExponentMask<float>));
}
HWY_INLINE Vector<std::uint64_t> alignment_field(Vector<std::uint64_t> c) {
  const Tag<std::uint64_t> d;
  const auto field = hn::And(c, hn::Set(d, kExponentMask<double>));
  const auto smallest = hn::Set(d, std::uint64_t{1023 - 126} << 52);
  return hn::IfThenElse(hn::Eq(field, hn::Zero(d)), hn::Zero(d), hn::Max(field, smallest));
}

/// A finished sum as the next step's c: truncated to the output's fraction
/// bits, with the lowest bit set (see README.md, "one FMA per product").
HWY_INLINE Vector<float> next_state(Vector<float> sum, Vector<float> c, const StepRounding& r) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const auto one = hn::Set(du, 1u);
  if (!r.half_output) {
    const auto kept = hn::Set(du, ~((1u << (23 - r.output_fraction_bits)) - 1u));
    return hn::BitCast(d, hn::OrAnd(one, hn::BitCast(du, sum), kept));
  }
  const auto half = hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag<float>>(), sum));
  const auto next = hn::BitCast(d, hn::Or(hn::BitCast(du, half), one));
  const auto field = hn::Set(du, kExponentMask<float>);
  const auto infinite = hn::Eq(hn::And(hn::BitCast(du, c), field), field);
  return hn::IfThenElse(hn::RebindMask(d, infinite), c, next);
}
HWY_INLINE Vector<double> next_state(Vector<double> sum, Vector<double> /*c*/,
                                     const StepRounding& r) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const hn::Rebind<float, Tag<double>> df;
  const hn::Rebind<std::uint32_t, Tag<double>> df_bits;
  const auto kept = hn::Set(df_bits, ~((1u << (23 - r.output_fraction_bits)) - 1u));
  const auto rounded = hn::BitCast(df, hn::And(hn::BitCast(df_bits, hn::DemoteTo(df, sum)), kept));
  return hn::BitCast(
      d, hn::Or(hn::BitCast(du, hn::PromoteTo(d, rounded)), hn::Set(du, Word<double>{1})));
}

/// The largest exponent among the products of each row with each column.
template <typename T, int R>
HWY_INLINE void largest_exponents(std::int64_t terms, const std::uint32_t* a, const Exponent<T>* b,
                                  Exponent<T>* largest) {
  const Tag<Exponent<T>> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  const auto floor = hn::Set(
      d, static_cast<Exponent<T>>(sizeof(T) == 4 ? kFloatExponentFloor : kDoubleExponentFloor));
  Vector<Exponent<T>> m[R];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) m[r] = floor;
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = 0; k < terms; ++k) {
    const auto e = hn::Load(d, b + k * width);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r)
      m[r] = hn::Max(m[r], hn::Add(e, hn::BitCast(d, hn::Set(d32, a[r * terms + k]))));
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) hn::Store(m[r], d, largest + r * width);
}

/// One fused step of R rows.
template <typename T, int R>
HWY_INLINE void fused_rows(const StepBlock<T>& s, const StepRounding& rounding, std::int64_t step,
                           std::int64_t row) {
  const Tag<T> d;
  const Tag<Word<T>> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const std::int64_t at = step * s.rows + row;
  HWY_ALIGN Exponent<T> exponents[R * kMaxWidth];
  HWY_ALIGN T magic[R * kMaxWidth];
  largest_exponents<T, R>(s.terms, s.a_exponents + at * s.terms,
                          s.b_exponents + step * s.terms * width, exponents);

  const auto to_magic =
      hn::Set(du, (static_cast<Word<T>>(kMantissaBits<T> - rounding.alignment_fraction_bits)
                   << kMantissaBits<T>) |
                      (Word<T>{1} << (kMantissaBits<T> - 1)));
  T* state = s.state + row * width;
  Vector<T> acc[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    const auto a_signs = hn::Set(du, s.a_signs[at + r]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = r * width + v * lanes;
      const auto c = hn::Load(d, state + i);
      const auto c_bits = hn::BitCast(du, c);
      const auto field = hn::Max(hn::ShiftLeft<kMantissaBits<T>>(load_exponents(du, exponents + i)),
                                 alignment_field(c_bits));
      const auto m = hn::Add(field, to_magic);
      hn::Store(hn::BitCast(d, m), d, magic + i);
      const auto b_signs = hn::Load(du, s.b_signs + step * width + v * lanes);
      const auto negatives = hn::Add(hn::PopulationCount(hn::Xor(a_signs, b_signs)),
                                     hn::ShiftRight<8 * sizeof(T) - 1>(c_bits));
      acc[r][v] = hn::Add(hn::BitCast(d, hn::Add(m, negatives)), c);
    }
  }
  multiply_add<T, R>(s.terms, s.a + at * s.terms, s.b + step * s.terms * width, acc);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = r * width + v * lanes;
      const auto sum = hn::Sub(acc[r][v], hn::Load(d, magic + i));
      hn::Store(next_state(sum, hn::Load(d, state + i), rounding), d, state + i);
    }
  }
}

template <typename T>
void fused(const StepBlock<T>& s, const StepRounding& rounding) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) fused_rows<T, kRows>(s, rounding, step, row);
    for (; row < s.rows; ++row) fused_rows<T, 1>(s, rounding, step, row);
  }
}

const FusedKernels* fused_kernels() {
  static const FusedKernels kTable{static_cast<std::int64_t>(hn::Lanes(Tag<float>())) * kVectors,
                                   static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors,
                                   fused<float>, fused<double>};
  return &kTable;
}

#else
const FusedKernels* fused_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

const FusedKernels* fused_kernels(Target target) {
  switch (target) {
    FP8LAB_TARGET_CASES(fused_kernels)
    default:
      return nullptr;
  }
}

}  // namespace fp8lab::gemm_detail
#endif
