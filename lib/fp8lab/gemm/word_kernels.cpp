#include <algorithm>

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

/// Exponents are mostly kept where binary32 has them, biased: as bits of powers of two. Sums of
/// them may wrap around.
constexpr std::int32_t field(int exponent) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
}

/// The exponent field of c: that of 2^-127 for zeros and subnormal numbers.
HWY_INLINE Vector<std::int32_t> field_of(Vector<float> c) {
  const Words d;
  return hn::And(hn::BitCast(d, c), hn::Set(d, field(255)));
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
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto of_b = hn::BitCast(d, hn::Load(Tag<std::uint8_t>(), b + k * width));
    most = hn::Max(most, hn::SaturatedAdd(of_b, hn::BitCast(d, hn::Set(d32, a[k]))));
  }
  hn::Store(most, d, largest);
}

/// As fields.
HWY_INLINE Vector<std::int32_t> load_exponents(const std::int8_t* largest) {
  const Words d;
  const auto exponents = hn::PromoteTo(d, hn::Load(hn::Rebind<std::int8_t, Words>(), largest));
  return hn::ShiftLeft<23>(hn::Add(exponents, hn::Set(d, 127)));
}

/// sum += a . b of every `kGroups`th term from `first` on, each product times `scale` and
/// truncated.
template <int kGroups>
HWY_INLINE void add_products(std::int64_t first, std::int64_t terms, const float* a, const float* b,
                             const Vector<float> (&scale)[kVectors],
                             Vector<std::int32_t> (&sum)[kVectors]) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto value = hn::Set(d, a[k]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto product = hn::Mul(value, hn::Load(d, b + (k * kVectors + v) * lanes));
      sum[v] = hn::Add(sum[v], truncated(hn::Mul(product, scale[v])));
    }
  }
}

/// Rows whose exponents are found before the first of them multiplies: it would wait for its own
/// otherwise.
constexpr std::int64_t kRowsAhead = 8;

/// One row's operands of one step.
struct Row {
  const float* a;
  const std::uint32_t* a_exponents;
  const float* b;
  const std::uint8_t* b_exponents;
  float* state;
  const std::int8_t* largest;  ///< exponents, [group][kMaxWidth]

  HWY_INLINE Row(const StepBlock<float>& s, std::int64_t step, std::int64_t row,
                 const std::int8_t* exponents = nullptr)
      : largest(exponents) {
    const auto width = static_cast<std::int64_t>(hn::Lanes(Floats())) * kVectors;
    const std::int64_t at = (step * s.rows + row) * s.terms;
    a = s.a + at;
    a_exponents = s.a_exponents + at;
    b = s.b + step * s.terms * width;
    b_exponents = s.b_exponents + step * s.terms * width;
    state = s.state + row * width;
  }
};

/// What c brings to the alignment, as a field. A c of zero, whose field is below all others,
/// nothing.
template <bool kHalf>
HWY_INLINE Vector<std::int32_t> alignment_of_c(Vector<float> c, const WordRounding& rounding) {
  const auto stored = field_of(c);
  if constexpr (!kHalf) return stored;
  const Words d;
  const auto zero = hn::RebindMask(d, hn::Eq(c, hn::Zero(Floats())));
  return hn::IfThenZeroElse(zero,
                            hn::Max(stored, hn::Set(d, field(127 + rounding.c_exponent_floor))));
}

/// A step's sum in units of its alignment: in 32 bits, or in two such parts, whose sum needs one
/// more.
template <bool kTwo>
struct Total;
template <>
struct Total<false> {
  Vector<std::int32_t> sum;

  /// Rounded toward zero, as the mode says.
  [[nodiscard]] HWY_INLINE Vector<float> whole() const { return hn::ConvertTo(Floats(), sum); }
  [[nodiscard]] HWY_INLINE hn::Mask<Words> is(Vector<float> whole) const {
    return hn::Eq(truncated(whole), sum);
  }
};
template <>
struct Total<true> {
  Vector<float> upper;  // its whole multiples of 256, the parts' upper 24 bits
  Vector<float> lower;  // up to 510

  HWY_INLINE Total(Vector<std::int32_t> x, Vector<std::int32_t> y) {
    const Words d;
    const auto low_bits = hn::Set(d, 255);
    upper = hn::Mul(hn::ConvertTo(Floats(), hn::Add(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y))),
                    hn::Set(Floats(), 256.0F));
    lower = hn::ConvertTo(Floats(), hn::Add(hn::And(x, low_bits), hn::And(y, low_bits)));
  }
  [[nodiscard]] HWY_INLINE Vector<float> whole() const { return hn::Add(upper, lower); }
  [[nodiscard]] HWY_INLINE hn::Mask<Words> is(Vector<float> whole) const {
    // Exact: integers of at most 10 bits.
    return hn::RebindMask(Words(), hn::Eq(hn::Sub(whole, upper), lower));
  }
};

/// A total in units of `unit` to FP16's nearest value, as binary32: to odd in between. An infinite
/// c stays.
template <bool kTwo>
HWY_INLINE Vector<float> nearest_half(const Total<kTwo>& total, Vector<float> unit,
                                      Vector<float> c) {
  const Floats d;
  const Words dw;
  const auto whole = total.whole();
  const auto odd =
      hn::Or(hn::BitCast(dw, whole), hn::IfThenZeroElse(total.is(whole), hn::Set(dw, 1)));
  const auto rounded =
      hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), hn::Mul(hn::BitCast(d, odd), unit));
  return hn::IfThenElse(hn::IsInf(c), c, hn::PromoteTo(d, rounded));
}

template <bool kHalf, bool kTwo>
HWY_INLINE void fused_row(const StepBlock<float>& s, const Row& r, const WordRounding& rounding) {
  const Floats d;
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  const auto to_scale = hn::Set(dw, field(254 + rounding.alignment_fraction_bits));
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::Load(d, r.state + v * lanes);
    const auto e =
        hn::Max(load_exponents(r.largest + v * lanes), alignment_of_c<kHalf>(c, rounding));
    scale[v] = hn::BitCast(d, hn::Sub(to_scale, e));
    sum[v] = truncated(hn::Mul(c, scale[v]));
    rest[v] = hn::Zero(dw);
  }
  const std::int64_t first = kTwo ? s.terms / 2 : s.terms;
  add_products<1>(0, first, r.a, r.b, scale, sum);
  if constexpr (kTwo) add_products<1>(first, s.terms, r.a, r.b, scale, rest);
  const auto kept =
      hn::Set(dw, static_cast<std::int32_t>(~((1u << (23 - rounding.output_fraction_bits)) - 1u)));
  const auto of_one = hn::Set(dw, 254 << 23);  // 2^x to 2^-x: exponent fields add up to this
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto unit = hn::BitCast(d, hn::Sub(of_one, hn::BitCast(dw, scale[v])));
    const auto total = [&]() HWY_ATTR {
      if constexpr (kTwo)
        return Total<true>(sum[v], rest[v]);
      else
        return Total<false>{sum[v]};
    }();
    if constexpr (kHalf) {
      const auto c = hn::Load(d, r.state + v * lanes);
      hn::Store(nearest_half(total, unit, c), d, r.state + v * lanes);
    } else {
      const auto whole = hn::And(hn::BitCast(dw, total.whole()), kept);
      hn::Store(hn::Mul(hn::BitCast(d, whole), unit), d, r.state + v * lanes);
    }
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

/// x / 2^count, rounded down, of a count as a field.
HWY_INLINE Vector<std::int32_t> shifted_down(Vector<std::int32_t> x, Vector<std::int32_t> count) {
  const auto bits = hn::ShiftRight<23>(count);
#if HWY_TARGET == HWY_AVX2
  return Vector<std::int32_t>{_mm256_srav_epi32(x.raw, bits.raw)};  // any count
#elif HWY_ARCH_X86
  return Vector<std::int32_t>{_mm512_srav_epi32(x.raw, bits.raw)};
#else
  return hn::Shr(x, hn::Min(bits, hn::Set(Words(), 31)));
#endif
}

/// Where a sum of products in units of 2^(e - F) meets c; e and all other exponents are fields.
/// `kDropsSmallC`: a c more than F + 1 binades below the largest exponent is zero.
template <bool kDropsSmallC>
HWY_INLINE Vector<float> second_stage(Vector<std::int32_t> sum, Vector<std::int32_t> e,
                                      Vector<float> c, const WordRounding& rounding) {
  const Floats d;
  const Words dw;
  const auto fraction = hn::Set(dw, field(rounding.alignment_fraction_bits));
  const auto c_exponent = field_of(c);
  const auto largest = hn::Max(e, c_exponent);
  const auto unit = hn::Sub(e, fraction);  // of the sum
  const auto second = hn::Set(dw, field(rounding.second_stage_fraction_bits));
  const auto next_unit = hn::Max(unit, hn::Sub(largest, second));
  const auto kept = shifted_down(sum, hn::Sub(next_unit, unit));
  const auto of_c = hn::Sub(largest, fraction);
  const auto scale = hn::BitCast(d, hn::Sub(hn::Set(dw, field(254)), of_c));
  auto kept_c = hn::Mul(hn::Floor(hn::Mul(c, scale)), hn::BitCast(d, of_c));
  if constexpr (kDropsSmallC) {
    const auto least = hn::Sub(of_c, hn::Set(dw, field(2)));
    kept_c = hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(c_exponent, least)), kept_c);
  }
  return rounded_sum(kept, hn::BitCast(d, next_unit), kept_c);
}

/// The sums of every `kGroups`th product from `first` on, in units of 2^(largest - F).
template <int kGroups>
HWY_INLINE void first_stage(const Row& r, std::int64_t first, std::int64_t terms,
                            const WordRounding& rounding, const std::int8_t* largest,
                            Vector<std::int32_t> (&sum)[kVectors]) {
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dw));
  Vector<float> scale[kVectors];
  const auto to_scale = hn::Set(dw, field(254 + rounding.alignment_fraction_bits));
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = hn::BitCast(Floats(), hn::Sub(to_scale, load_exponents(largest + v * lanes)));
    sum[v] = hn::Zero(dw);
  }
  add_products<kGroups>(first, terms, r.a, r.b, scale, sum);
}

HWY_INLINE void two_stage_row(const StepBlock<float>& s, const Row& r,
                              const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<std::int32_t> sum[kVectors];
  first_stage<1>(r, 0, s.terms, rounding, r.largest, sum);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    const auto e = load_exponents(r.largest + v * lanes);
    hn::Store(second_stage<false>(sum[v], e, hn::Load(d, c), rounding), d, c);
  }
}

HWY_INLINE void even_odd_row(const StepBlock<float>& s, const Row& r,
                             const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int8_t* largest_odd = r.largest + kMaxWidth;
  Vector<std::int32_t> even[kVectors];
  Vector<std::int32_t> odd[kVectors];
  first_stage<2>(r, 0, s.terms, rounding, r.largest, even);
  first_stage<2>(r, 1, s.terms, rounding, largest_odd, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto e_even = load_exponents(r.largest + v * lanes);
    const auto e_odd = load_exponents(largest_odd + v * lanes);
    const auto e = hn::Max(e_even, e_odd);
    const auto sum =
        hn::Add(shifted_down(even[v], hn::Sub(e, e_even)), shifted_down(odd[v], hn::Sub(e, e_odd)));
    float* c = r.state + v * lanes;
    hn::Store(second_stage<true>(sum, e, hn::Load(d, c), rounding), d, c);
  }
}

/// one_row(block, row's operands) of every step and row, whose terms are aligned in `kGroups`
/// groups.
template <int kGroups, class OneRow>
HWY_INLINE void for_rows(const StepBlock<float>& from, int exponent_floor, const OneRow& one_row) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  HWY_ALIGN std::int8_t largest[kRowsAhead * kGroups * kMaxWidth];
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t first = 0; first < s.rows; first += kRowsAhead) {
      const std::int64_t rows = std::min(kRowsAhead, s.rows - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        const Row r(s, step, first + i);
        for (int group = 0; group < kGroups; ++group)
          largest_exponents<kGroups>(group, s.terms, exponent_floor, r.a_exponents, r.b_exponents,
                                     largest + (i * kGroups + group) * kMaxWidth);
      }
      for (std::int64_t i = 0; i < rows; ++i)
        one_row(s, Row(s, step, first + i, largest + i * kGroups * kMaxWidth));
    }
}

template <bool kHalf, bool kTwo>
void fused_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<1>(s, r.exponent_floor, [&](const auto& block, const Row& row) HWY_ATTR {
    fused_row<kHalf, kTwo>(block, row, r);
  });
}

void fused_words(const StepBlock<float>& s, const WordRounding& rounding) {
  if (rounding.half_output)
    (rounding.two_sums ? fused_steps<true, true> : fused_steps<true, false>)(s, rounding);
  else
    (rounding.two_sums ? fused_steps<false, true> : fused_steps<false, false>)(s, rounding);
}
void two_stage_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<1>(s, kWordExponentFloor,
              [&](const auto& block, const Row& row) HWY_ATTR { two_stage_row(block, row, r); });
}
void even_odd_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<2>(s, kWordExponentFloor,
              [&](const auto& block, const Row& row) HWY_ATTR { even_odd_row(block, row, r); });
}

void exponents(const float* values, std::int64_t count, int smallest, std::uint8_t* to) {
  const Floats d;
  const Words dw;
  const hn::Rebind<std::int8_t, Words> db;
  const hn::Rebind<std::uint8_t, Words> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    const auto exponent_of = hn::Sub(hn::ShiftRight<23>(field_of(x)), hn::Set(dw, 127));
    const auto stored = hn::Max(exponent_of, hn::Set(dw, smallest));
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
