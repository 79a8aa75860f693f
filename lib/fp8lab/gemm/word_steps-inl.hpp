// What ends a step whose aligned products are 32-bit integers: docs/lab/gemm.md, "Short steps". In
// lanes of outputs, of any number; included once for each target.

#include <cstdint>

#include "fp8lab/gemm/unit_kernels.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_WORD_STEPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_WORD_STEPS_INL
#undef FP8LAB_GEMM_WORD_STEPS_INL
#else
#define FP8LAB_GEMM_WORD_STEPS_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

/// Of vectors of binary32: its tag, that of integers of their size, and these.
template <class V>
using FloatsOf = hn::DFromV<V>;
template <class V>
using WordsOf = hn::RebindToSigned<FloatsOf<V>>;
template <class V>
using WordVector = hn::Vec<WordsOf<V>>;

/// As integers, toward zero, of numbers that fit.
template <class V>
HWY_INLINE WordVector<V> truncated(V x) {
#if HWY_ARCH_X86
  if constexpr (sizeof(x.raw) == 16)
    return WordVector<V>{_mm_cvttps_epi32(x.raw)};
  else if constexpr (sizeof(x.raw) == 32)
    return WordVector<V>{_mm256_cvttps_epi32(x.raw)};
#if HWY_TARGET != HWY_AVX2
  else
    return WordVector<V>{_mm512_cvttps_epi32(x.raw)};
#endif
#else
  return hn::ConvertTo(WordsOf<V>(), x);
#endif
}

// Vectors of 512 bits round as an instruction says, whatever the mode.
#undef FP8LAB_ROUNDS_IN_REGISTERS
#define FP8LAB_ROUNDS_IN_REGISTERS (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

/// As integers, rounded down.
template <class V>
HWY_INLINE WordVector<V> floored(V x) {
#if FP8LAB_ROUNDS_IN_REGISTERS
  if constexpr (sizeof(x.raw) == 64)
    return WordVector<V>{
        _mm512_cvt_roundps_epi32(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  else
#endif
    return truncated(hn::Floor(x));
}

/// Exponents are mostly kept where binary32 has them, biased: as bits of powers of two. Sums of
/// them may wrap around.
constexpr std::int32_t field(int exponent) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
}

/// The exponent field of c: that of 2^-127 for zeros and subnormal numbers.
template <class V>
HWY_INLINE WordVector<V> field_of(V c) {
  const WordsOf<V> d;
  return hn::And(hn::BitCast(d, c), hn::Set(d, field(255)));
}

/// What c brings to the alignment, as a field. A c of zero, whose field is below all others,
/// nothing.
template <bool kHalf, class V>
HWY_INLINE WordVector<V> alignment_of_c(V c, const WordRounding& rounding) {
  const auto stored = field_of(c);
  if constexpr (!kHalf) return stored;
  const WordsOf<V> d;
  const auto zero = hn::RebindMask(d, hn::Eq(c, hn::Zero(FloatsOf<V>())));
  return hn::IfThenZeroElse(zero,
                            hn::Max(stored, hn::Set(d, field(127 + rounding.c_exponent_floor))));
}

/// From the field of a fused step's alignment to what its products are multiplied by, and back to
/// a unit of their sum.
template <class V>
HWY_INLINE V fused_scale(WordVector<V> e, int fraction_bits) {
  const WordsOf<V> d;
  const auto to_scale = hn::Set(d, field(254 + fraction_bits));
  return hn::BitCast(FloatsOf<V>(), hn::Sub(to_scale, e));
}
/// From what products are multiplied by to what they are once c takes part, whose exponent field is
/// given. Compared without signs: that of a small c passes 2^31.
template <class V>
HWY_INLINE V scale_with(V scale, WordVector<V> of_c, int fraction_bits) {
  const hn::RebindToUnsigned<FloatsOf<V>> d;
  const auto with_c = hn::BitCast(d, fused_scale<V>(of_c, fraction_bits));
  return hn::BitCast(FloatsOf<V>(), hn::Min(hn::BitCast(d, scale), with_c));
}
template <class V>
HWY_INLINE V unit_of(V scale) {
  const WordsOf<V> d;
  const auto of_one = hn::Set(d, 254 << 23);  // 2^x to 2^-x: exponent fields add up to this
  return hn::BitCast(FloatsOf<V>(), hn::Sub(of_one, hn::BitCast(d, scale)));
}

/// x with its lowest bit set where asked for.
template <class V>
HWY_INLINE V with_mark(V x, hn::Mask<WordsOf<V>> marked) {
  const WordsOf<V> d;
  const auto bits = hn::BitCast(d, x);
  return hn::BitCast(FloatsOf<V>(), hn::IfThenElse(marked, hn::Or(bits, hn::Set(d, 1)), bits));
}

/// A step's sum in units of its alignment: in 32 bits, or in two such parts, whose sum needs one
/// more.
template <bool kTwo, class V>
struct Total;
template <class V>
struct Total<false, V> {
  WordVector<V> sum;

  HWY_INLINE Total() = default;
  HWY_INLINE Total(WordVector<V> x, WordVector<V> /*none*/) : sum(x) {}
  /// Rounded toward zero, as the mode says.
  [[nodiscard]] HWY_INLINE V whole() const { return hn::ConvertTo(FloatsOf<V>(), sum); }
  /// Rounded to odd: toward zero, with the lowest bit set where bits are lost.
  [[nodiscard]] HWY_INLINE V odd() const {
#if FP8LAB_ROUNDS_IN_REGISTERS
    if constexpr (sizeof(sum.raw) == 64) {
      // One of the two neighbours is odd.
      constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
      constexpr int kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
      const __m512 below = _mm512_cvt_roundepi32_ps(sum.raw, kDown);
      const __mmask16 even =
          _mm512_testn_epi32_mask(_mm512_castps_si512(below), _mm512_set1_epi32(1));
      return V{_mm512_mask_cvt_roundepi32_ps(below, even, sum.raw, kUp)};
    }
#endif
    const auto cut = whole();
    return with_mark(cut, hn::Ne(truncated(cut), sum));
  }
};
template <class V>
struct Total<true, V> {
  V upper;  // its whole multiples of 256, the parts' upper 24 bits
  V lower;  // up to 510

  HWY_INLINE Total() = default;
  HWY_INLINE Total(WordVector<V> x, WordVector<V> y) {
    const WordsOf<V> d;
    const FloatsOf<V> df;
    const auto low_bits = hn::Set(d, 255);
    upper = hn::Mul(hn::ConvertTo(df, hn::Add(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y))),
                    hn::Set(df, 256.0F));
    lower = hn::ConvertTo(df, hn::Add(hn::And(x, low_bits), hn::And(y, low_bits)));
  }
  [[nodiscard]] HWY_INLINE V whole() const { return hn::Add(upper, lower); }
  [[nodiscard]] HWY_INLINE V odd() const {
    const auto cut = whole();
    // Exact: integers of at most 10 bits.
    return with_mark(cut, hn::RebindMask(WordsOf<V>(), hn::Ne(hn::Sub(cut, upper), lower)));
  }
};

/// What a fused step makes of its sums, c included, whose second parts are there with kTwo;
/// operations of N vectors take turns: those of one would wait for each other. First for FP16: to
/// odd, from which the next conversion rounds.
template <bool kTwo, class V, int N>
HWY_INLINE void odd_results(const WordVector<V> (&sum)[N], const WordVector<V> (&rest)[N],
                            const V (&scale)[N], V (&odd)[N]) {
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) odd[v] = Total<kTwo, V>(sum[v], rest[v]).odd();
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) odd[v] = hn::Mul(odd[v], unit_of(scale[v]));
}

template <class V>
using HalvesOf = hn::Rebind<hwy::float16_t, FloatsOf<V>>;

/// FP16's values, of which an infinite c stays.
template <bool kTwo, class V, int N>
HWY_INLINE void half_results(const WordVector<V> (&sum)[N], const WordVector<V> (&rest)[N],
                             const V (&scale)[N], const float* c, float* to) {
  const FloatsOf<V> d;
  const auto infinity = hn::Set(WordsOf<V>(), field(255));
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V odd[N];
  odd_results<kTwo>(sum, rest, scale, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto nearest = hn::PromoteTo(d, hn::DemoteTo(HalvesOf<V>(), odd[v]));
    const auto before = hn::Load(d, c + v * lanes);
    const auto infinite = hn::RebindMask(d, hn::Eq(field_of(before), infinity));
    hn::Store(hn::IfThenElse(infinite, before, nearest), d, to + v * lanes);
  }
}

/// Binary32's, truncated.
template <bool kTwo, class V, int N>
HWY_INLINE void float_results(const WordVector<V> (&sum)[N], const WordVector<V> (&rest)[N],
                              const V (&scale)[N], float* to, const WordRounding& rounding) {
  const FloatsOf<V> d;
  const WordsOf<V> dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto kept =
      hn::Set(dw, static_cast<std::int32_t>(~((1u << (23 - rounding.output_fraction_bits)) - 1u)));
  V whole[N];
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) whole[v] = Total<kTwo, V>(sum[v], rest[v]).whole();
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto cut = hn::BitCast(d, hn::And(hn::BitCast(dw, whole[v]), kept));
    hn::Store(hn::Mul(cut, unit_of(scale[v])), d, to + v * lanes);
  }
}

/// sum * unit + c, rounded once. The sum's upper bits, its lower ones and c are three numbers of
/// binary32; what the first addition loses is as coarse as the lower bits' unit and added to them
/// exactly.
template <class V>
HWY_INLINE V rounded_sum(WordVector<V> sum, V unit, V c) {
  const FloatsOf<V> d;
  const WordsOf<V> dw;
  const auto low_bits = hn::Set(dw, 255);
  const auto x = hn::Mul(hn::ConvertTo(d, hn::AndNot(low_bits, sum)), unit);
  const auto first = hn::Add(x, c);
  const auto of_c = hn::Sub(first, x);
  const auto lost = hn::Add(hn::Sub(x, hn::Sub(first, of_c)), hn::Sub(c, of_c));
  return hn::Add(first, hn::MulAdd(hn::ConvertTo(d, hn::And(low_bits, sum)), unit, lost));
}

/// sum * unit + c, which binary64 holds, rounded down to 31 fraction bits and then to nearest.
template <class VW, class V>
HWY_INLINE auto rounded_from_31(VW sum, V unit, V c) {
  const hn::Rebind<double, hn::DFromV<V>> d;
  const hn::RebindToSigned<decltype(d)> dw;
  const auto exact = hn::MulAdd(hn::PromoteTo(d, sum), hn::PromoteTo(d, unit), hn::PromoteTo(d, c));
  const auto dropped = hn::Set(dw, (std::int64_t{1} << (52 - 31)) - 1);
  const auto bits = hn::BitCast(dw, exact);
  // A magnitude grows where the number is negative.
  const auto more = hn::And(hn::BroadcastSignBit(bits), dropped);
  return hn::DemoteTo(hn::DFromV<V>(), hn::BitCast(d, hn::AndNot(dropped, hn::Add(bits, more))));
}
template <class V>
HWY_INLINE V rounded_sum_from_31(WordVector<V> sum, V unit, V c) {
  const FloatsOf<V> d;
  const hn::Half<FloatsOf<V>> dh;
  const hn::Half<WordsOf<V>> dw;
  return hn::Combine(
      d, rounded_from_31(hn::UpperHalf(dw, sum), hn::UpperHalf(dh, unit), hn::UpperHalf(dh, c)),
      rounded_from_31(hn::LowerHalf(dw, sum), hn::LowerHalf(dh, unit), hn::LowerHalf(dh, c)));
}

/// x / 2^count, rounded down, of a count as a field.
template <class VW>
HWY_INLINE VW shifted_down(VW x, VW count) {
  const auto bits = hn::ShiftRight<23>(count);
#if HWY_ARCH_X86
  if constexpr (sizeof(x.raw) == 16)
    return VW{_mm_srav_epi32(x.raw, bits.raw)};  // any count
  else if constexpr (sizeof(x.raw) == 32)
    return VW{_mm256_srav_epi32(x.raw, bits.raw)};
#if HWY_TARGET != HWY_AVX2
  else
    return VW{_mm512_srav_epi32(x.raw, bits.raw)};
#endif
#else
  return hn::Shr(x, hn::Min(bits, hn::Set(hn::DFromV<VW>(), 31)));
#endif
}

/// Of the second stage's result, where the sum of products has one more.
constexpr int kResultFractionBits = 31;

/// Where a sum of products in units of 2^(e - F) meets c; e and all other exponents are fields.
/// `kDropsSmallC`: a c more than F + 1 binades below the largest exponent is zero.
template <bool kDropsSmallC, class V>
HWY_INLINE V second_stage(WordVector<V> sum, WordVector<V> e, V c, const WordRounding& rounding) {
  const FloatsOf<V> d;
  const WordsOf<V> dw;
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
  const V kept_unit = hn::BitCast(d, next_unit);
  return rounding.second_stage_fraction_bits > kResultFractionBits
             ? rounded_sum_from_31(kept, kept_unit, kept_c)
             : rounded_sum(kept, kept_unit, kept_c);
}

/// Below the exponent of a c as an integer: see short_second_stages.
constexpr int kBitsOfC = 29;

/// The same of N vectors of sums below 2^29, with at least 23 fraction bits and 32 in the second
/// stage: c and the sums become integers of one unit, that of the sums, 1 / scale, or
/// 1 / scale_of_c of a c that is larger. With such a c a sum has up to three bits more, of which
/// the result's 31 fraction bits hold three, two or one, the fewer the larger it is. They only say
/// that there is more, which the lowest bit says instead.
template <class V, int N>
HWY_INLINE void short_second_stages(const WordVector<V> (&sum)[N], const V (&scale)[N],
                                    const V (&scale_of_c)[N], float* c) {
  const FloatsOf<V> d;
  const WordsOf<V> dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto none = hn::Zero(dw);
  WordVector<V> total[N];
  WordVector<V> more[N];
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v)
    total[v] = floored(hn::Mul(hn::Load(d, c + v * lanes), scale_of_c[v]));
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto count = hn::Sub(hn::BitCast(dw, scale[v]), hn::BitCast(dw, scale_of_c[v]));
    total[v] = hn::Add(total[v], shifted_down(sum[v], count));
    const auto three = hn::Sub(count, hn::Set(dw, field(1)));  // 2 bits to the left, count right
    const auto lower = shifted_down(hn::ShiftLeft<2>(sum[v]), hn::Max(three, none));
    more[v] = hn::IfThenElseZero(hn::Gt(count, none), hn::And(lower, hn::Set(dw, 7)));
  }
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto magnitude = hn::Abs(total[v]);
    const auto lost =
        hn::Or(hn::ShiftRight<kBitsOfC>(magnitude), hn::ShiftRight<kBitsOfC + 1>(magnitude));
    more[v] = hn::Min(hn::AndNot(lost, more[v]), hn::Set(dw, 1));
  }
  FP8LAB_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto rounded = hn::ConvertTo(d, hn::Or(total[v], more[v]));
    hn::Store(hn::Mul(rounded, unit_of(scale_of_c[v])), d, c + v * lanes);
  }
}

/// The same of sums of even and odd terms apart, with alignments of their own.
template <class V>
HWY_INLINE V even_odd_result(WordVector<V> even, WordVector<V> odd, WordVector<V> e_even,
                             WordVector<V> e_odd, V c, const WordRounding& rounding) {
  const auto e = hn::Max(e_even, e_odd);
  const auto sum =
      hn::Add(shifted_down(even, hn::Sub(e, e_even)), shifted_down(odd, hn::Sub(e, e_odd)));
  return second_stage<true>(sum, e, c, rounding);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
