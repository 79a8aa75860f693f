#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/word_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Words = Tag<std::int32_t>;
using Floats = Tag<float>;

/// As integers, toward zero, of numbers that fit.
HWY_INLINE Vector<std::int32_t> truncated(Vector<float> x) {
#if HWY_TARGET == HWY_AVX2
  return Vector<std::int32_t>{_mm256_cvttps_epi32(x.raw)};
#elif HWY_ARCH_X86
  return Vector<std::int32_t>{_mm512_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(Words(), x);
#endif
}

/// 2^exponent, a normal number.
HWY_INLINE Vector<float> power_of_two(Vector<std::int32_t> exponent) {
  const Words d;
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(d, 127))));
}

/// The stored exponent of c, at most -127 of zeros and subnormal numbers.
HWY_INLINE Vector<std::int32_t> exponent_of(Vector<float> c) {
  const Words d;
  const auto field = hn::And(hn::ShiftRight<23>(hn::BitCast(d, c)), hn::Set(d, 255));
  return hn::Sub(field, hn::Set(d, 127));
}

/// The largest exponents of one row's products with the panel: of every `kGroups`th term from
/// `first` on.
template <int kGroups>
HWY_INLINE void largest_exponents(std::int64_t first, std::int64_t terms, int floor,
                                  const std::uint32_t* a, const std::uint8_t* b,
                                  std::int8_t* largest) {
  const Tag<std::int8_t> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, static_cast<std::int8_t>(floor));
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto of_b = hn::BitCast(d, hn::Load(Tag<std::uint8_t>(), b + k * width));
    most = hn::Max(most, hn::SaturatedAdd(of_b, hn::BitCast(d, hn::Set(d32, a[k]))));
  }
  hn::Store(most, d, largest);
}

HWY_INLINE Vector<std::int32_t> load_exponents(const std::int8_t* largest) {
  return hn::PromoteTo(Words(), hn::Load(hn::Rebind<std::int8_t, Words>(), largest));
}

/// sum += a . b of every `kGroups`th term from `first` on, each product times `scale` and
/// truncated.
template <int kGroups>
HWY_INLINE void add_products(std::int64_t first, std::int64_t terms, const float* a, const float* b,
                             const Vector<float> (&scale)[kVectors],
                             Vector<std::int32_t> (&sum)[kVectors]) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto value = hn::Set(d, a[k]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto product = hn::Mul(value, hn::Load(d, b + (k * kVectors + v) * lanes));
      sum[v] = hn::Add(sum[v], truncated(hn::Mul(product, scale[v])));
    }
  }
}

/// One row's operands of one step.
struct Row {
  const float* a;
  const std::uint32_t* a_exponents;
  const float* b;
  const std::uint8_t* b_exponents;
  float* state;

  HWY_INLINE Row(const StepBlock<float>& s, std::int64_t step, std::int64_t row) {
    const auto width = static_cast<std::int64_t>(hn::Lanes(Floats())) * kVectors;
    const std::int64_t at = (step * s.rows + row) * s.terms;
    a = s.a + at;
    a_exponents = s.a_exponents + at;
    b = s.b + step * s.terms * width;
    b_exponents = s.b_exponents + step * s.terms * width;
    state = s.state + row * width;
  }
};

/// What c brings to the alignment. A c of zero, whose exponent is below all others, nothing.
template <bool kHalf>
HWY_INLINE Vector<std::int32_t> alignment_of_c(Vector<float> c, const WordRounding& rounding) {
  const auto exponent = exponent_of(c);
  if constexpr (!kHalf) return exponent;
  const Words d;
  const auto zero = hn::RebindMask(d, hn::Eq(c, hn::Zero(Floats())));
  const auto raised = hn::Max(exponent, hn::Set(d, rounding.c_exponent_floor));
  return hn::IfThenElse(zero, exponent, raised);
}

/// `sum` of units of `unit` to FP16's nearest value, as binary32: to odd in between. An infinite c
/// stays.
HWY_INLINE Vector<float> nearest_half(Vector<std::int32_t> sum, Vector<float> unit,
                                      Vector<float> c) {
  const Floats d;
  const Words dw;
  const auto whole = hn::ConvertTo(d, sum);
  const auto exact = hn::Eq(truncated(whole), sum);
  const auto odd = hn::Or(hn::BitCast(dw, whole), hn::IfThenZeroElse(exact, hn::Set(dw, 1)));
  const auto rounded =
      hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), hn::Mul(hn::BitCast(d, odd), unit));
  return hn::IfThenElse(hn::IsInf(c), c, hn::PromoteTo(d, rounded));
}

template <bool kHalf>
HWY_INLINE void fused_row(const StepBlock<float>& s, const WordRounding& rounding,
                          std::int64_t step, std::int64_t row) {
  const Floats d;
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Row r(s, step, row);
  HWY_ALIGN std::int8_t largest[kMaxWidth];
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  largest_exponents<1>(0, s.terms, rounding.exponent_floor, r.a_exponents, r.b_exponents, largest);
  const auto bits = hn::Set(dw, rounding.alignment_fraction_bits);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::Load(d, r.state + v * lanes);
    const auto e = hn::Max(load_exponents(largest + v * lanes), alignment_of_c<kHalf>(c, rounding));
    scale[v] = power_of_two(hn::Sub(bits, e));
    sum[v] = truncated(hn::Mul(c, scale[v]));
  }
  add_products<1>(0, s.terms, r.a, r.b, scale, sum);
  const auto kept =
      hn::Set(dw, static_cast<std::int32_t>(~((1u << (23 - rounding.output_fraction_bits)) - 1u)));
  const auto of_one = hn::Set(dw, 254 << 23);  // 2^x to 2^-x: exponent fields add up to this
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto unit = hn::BitCast(d, hn::Sub(of_one, hn::BitCast(dw, scale[v])));
    if constexpr (kHalf) {
      const auto c = hn::Load(d, r.state + v * lanes);
      hn::Store(nearest_half(sum[v], unit, c), d, r.state + v * lanes);
      continue;
    }
    const auto whole = hn::And(hn::BitCast(dw, hn::ConvertTo(d, sum[v])), kept);
    hn::Store(hn::Mul(hn::BitCast(d, whole), unit), d, r.state + v * lanes);
  }
}

/// sum * unit + c, rounded once. The sum's upper bits, its lower ones and c are three numbers of
/// binary32; what the first addition loses is as coarse as the lower bits' unit and added to them
/// exactly.
HWY_INLINE Vector<float> rounded_sum(Vector<std::int32_t> sum, Vector<float> unit,
                                     Vector<float> c) {
  const Floats d;
  const Words dw;
  const auto low_bits = hn::Set(dw, 255);
  const auto x = hn::Mul(hn::ConvertTo(d, hn::AndNot(low_bits, sum)), unit);
  const auto first = hn::Add(x, c);
  const auto of_c = hn::Sub(first, x);
  const auto lost = hn::Add(hn::Sub(x, hn::Sub(first, of_c)), hn::Sub(c, of_c));
  return hn::Add(first, hn::MulAdd(hn::ConvertTo(d, hn::And(low_bits, sum)), unit, lost));
}

/// x / 2^count, rounded down.
HWY_INLINE Vector<std::int32_t> shifted_down(Vector<std::int32_t> x, Vector<std::int32_t> count) {
  return hn::Shr(x, hn::Min(count, hn::Set(Words(), 31)));
}

/// Where a sum of products meets c. `drops_small_c`: one more than F + 1 binades below is zero.
template <bool kDropsSmallC>
HWY_INLINE Vector<float> second_stage(Vector<std::int32_t> sum, Vector<std::int32_t> e,
                                      Vector<float> c, const WordRounding& rounding) {
  const Floats d;
  const Words dw;
  const auto bits = hn::Set(dw, rounding.alignment_fraction_bits);
  const auto c_exponent = exponent_of(c);
  const auto largest = hn::Max(e, c_exponent);
  const auto unit = hn::Sub(e, bits);  // of the sum
  const auto next_unit =
      hn::Max(unit, hn::Sub(largest, hn::Set(dw, rounding.second_stage_fraction_bits)));
  const auto kept = shifted_down(sum, hn::Sub(next_unit, unit));
  const auto scale = power_of_two(hn::Sub(bits, largest));
  const auto c_unit = hn::BitCast(d, hn::Sub(hn::Set(dw, 254 << 23), hn::BitCast(dw, scale)));
  auto kept_c = hn::Mul(hn::Floor(hn::Mul(c, scale)), c_unit);
  if constexpr (kDropsSmallC) {
    const auto least = hn::Sub(hn::Sub(largest, bits), hn::Set(dw, 2));
    kept_c = hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(c_exponent, least)), kept_c);
  }
  return rounded_sum(kept, power_of_two(next_unit), kept_c);
}

/// The sums of every `kGroups`th product from `first` on, in units of 2^(largest - F).
template <int kGroups>
HWY_INLINE void first_stage(const Row& r, std::int64_t first, std::int64_t terms,
                            const WordRounding& rounding, std::int8_t* largest,
                            Vector<std::int32_t> (&sum)[kVectors]) {
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dw));
  Vector<float> scale[kVectors];
  largest_exponents<kGroups>(first, terms, kWordExponentFloor, r.a_exponents, r.b_exponents,
                             largest);
  const auto bits = hn::Set(dw, rounding.alignment_fraction_bits);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = power_of_two(hn::Sub(bits, load_exponents(largest + v * lanes)));
    sum[v] = hn::Zero(dw);
  }
  add_products<kGroups>(first, terms, r.a, r.b, scale, sum);
}

HWY_INLINE void two_stage_row(const StepBlock<float>& s, const WordRounding& rounding,
                              std::int64_t step, std::int64_t row) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Row r(s, step, row);
  HWY_ALIGN std::int8_t largest[kMaxWidth];
  Vector<std::int32_t> sum[kVectors];
  first_stage<1>(r, 0, s.terms, rounding, largest, sum);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    hn::Store(
        second_stage<false>(sum[v], load_exponents(largest + v * lanes), hn::Load(d, c), rounding),
        d, c);
  }
}

HWY_INLINE void even_odd_row(const StepBlock<float>& s, const WordRounding& rounding,
                             std::int64_t step, std::int64_t row) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Row r(s, step, row);
  HWY_ALIGN std::int8_t largest_even[kMaxWidth];
  HWY_ALIGN std::int8_t largest_odd[kMaxWidth];
  Vector<std::int32_t> even[kVectors];
  Vector<std::int32_t> odd[kVectors];
  first_stage<2>(r, 0, s.terms, rounding, largest_even, even);
  first_stage<2>(r, 1, s.terms, rounding, largest_odd, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto e_even = load_exponents(largest_even + v * lanes);
    const auto e_odd = load_exponents(largest_odd + v * lanes);
    const auto e = hn::Max(e_even, e_odd);
    const auto sum =
        hn::Add(shifted_down(even[v], hn::Sub(e, e_even)), shifted_down(odd[v], hn::Sub(e, e_odd)));
    float* c = r.state + v * lanes;
    hn::Store(second_stage<true>(sum, e, hn::Load(d, c), rounding), d, c);
  }
}

template <class OneRow>
HWY_INLINE void for_rows(const StepBlock<float>& from, const OneRow& one_row) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t row = 0; row < s.rows; ++row) one_row(s, step, row);
}

void fused_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  if (r.half_output)
    for_rows(s, [&](const auto& block, auto step, auto row)
                    HWY_ATTR { fused_row<true>(block, r, step, row); });
  else
    for_rows(s, [&](const auto& block, auto step, auto row)
                    HWY_ATTR { fused_row<false>(block, r, step, row); });
}
void two_stage_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows(s, [&](const auto& block, auto step, auto row)
                  HWY_ATTR { two_stage_row(block, r, step, row); });
}
void even_odd_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows(s, [&](const auto& block, auto step, auto row)
                  HWY_ATTR { even_odd_row(block, r, step, row); });
}

void exponents(const float* values, std::int64_t count, int smallest, std::uint8_t* to) {
  const Floats d;
  const Words dw;
  const hn::Rebind<std::int8_t, Words> db;
  const hn::Rebind<std::uint8_t, Words> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    const auto stored = hn::Max(exponent_of(x), hn::Set(dw, smallest));
    const auto zero = hn::RebindMask(dw, hn::Eq(x, hn::Zero(d)));
    const auto exponent = hn::IfThenElse(zero, hn::Set(dw, kWordExponentOfZero), stored);
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(db, exponent)), du, to + i);
  }
}

const WordKernels* word_kernels() {
  static const WordKernels kTable{exponents, fused_words, two_stage_words, even_odd_words};
  return &kTable;
}

#else
const WordKernels* word_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(WordKernels, word_kernels)

}  // namespace fp8lab::gemm_detail
#endif
