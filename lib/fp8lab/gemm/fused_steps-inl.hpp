// What begins and ends a fused step of rows of a panel: docs/lab/gemm.md, "Fused steps". Included
// once for each target.

#include <cstdint>

#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_FUSED_STEPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_FUSED_STEPS_INL
#undef FP8LAB_GEMM_FUSED_STEPS_INL
#else
#define FP8LAB_GEMM_FUSED_STEPS_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

using Words = Tag<std::uint32_t>;

HWY_INLINE Vector<std::uint32_t> count_bits(Vector<std::uint32_t> x) {
#if HWY_TARGET == HWY_AVX2
  // Without an instruction for words a product adds up the counts of their bytes.
  const Words d;
  const auto bytes = hn::BitCast(d, hn::PopulationCount(hn::BitCast(Tag<std::uint8_t>(), x)));
  return hn::ShiftRight<24>(hn::Mul(bytes, hn::Set(d, 0x01010101u)));
#else
  return hn::PopulationCount(x);
#endif
}

// A permutation of two vectors' words, whichever, in one instruction.
#undef FP8LAB_HAS_TWO_TABLES
#define FP8LAB_HAS_TWO_TABLES (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

#if FP8LAB_HAS_TWO_TABLES
/// Numbers of binary64 from lower and upper words: of the vectors' lower or upper halves.
template <bool kUpper>
HWY_INLINE Vector<double> from_words(Vector<std::uint32_t> lower, Vector<std::uint32_t> upper) {
  constexpr int k = kUpper ? 8 : 0;
  const __m512i places =
      _mm512_setr_epi32(k, k + 16, k + 1, k + 17, k + 2, k + 18, k + 3, k + 19, k + 4, k + 20,
                        k + 5, k + 21, k + 6, k + 22, k + 7, k + 23);
  const __m512i words = _mm512_permutex2var_epi32(lower.raw, places, upper.raw);
  return Vector<double>{_mm512_castsi512_pd(words)};
}
#endif

/// What a step adds to before its products: magic numbers, and the number of negative products.
struct Starts {
  Vector<std::uint32_t> magic;
  Vector<std::uint32_t> negatives;
};

/// For the columns whose exponents and signs follow the pointers, for accumulators c; of
/// binary64 c and magic numbers are the upper words.
template <typename T, bool kHalf>
HWY_INLINE Starts starts(const StepRounding& rounding, const Exponent<T>* largest,
                         Vector<std::uint32_t> c, Vector<std::uint32_t> a_signs,
                         const std::uint32_t* b_signs) {
  const Words d;
  constexpr int kBits = sizeof(T) == 4 ? 23 : 20;  // of the mantissa in such words
  auto field = hn::And(c, hn::Set(d, (1u << 31) - (1u << kBits)));
  if constexpr (sizeof(T) == 8 || kHalf) {
    // A subnormal c takes part with its format's smallest exponent, a zero, whose marked field
    // is below all others, not at all.
    const hn::Rebind<std::int32_t, Words> di;
    const auto smallest =
        hn::Set(d, static_cast<std::uint32_t>(rounding.c_exponent_floor) << kBits);
    const auto zeros = hn::Set(di, (sizeof(T) == 8 ? kDoubleExponentFloor : 0) << kBits);
    field = hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(hn::BitCast(di, field), zeros)),
                               hn::Max(field, smallest));
  }
  const auto exponents = hn::PromoteTo(d, hn::Load(hn::Rebind<Exponent<T>, Words>(), largest));
  const auto to_magic = hn::Set(
      d,
      (static_cast<std::uint32_t>(kMantissaBits<T> - rounding.alignment_fraction_bits) << kBits) |
          (1u << (kBits - 1)));
  return {hn::Add(hn::Max(hn::ShiftLeft<kBits>(exponents), field), to_magic),
          hn::Add(count_bits(hn::Xor(a_signs, hn::Load(d, b_signs))), hn::ShiftRight<31>(c))};
}

/// The magic numbers of vector v, of those that start wrote for a row.
template <typename T>
HWY_INLINE Vector<T> load_magic(const std::uint32_t* magic, int v) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag<T>()));
  if constexpr (sizeof(T) == 4) {
    return hn::BitCast(Tag<T>(), hn::Load(Words(), magic + v * kLanes));
  } else {
#if FP8LAB_HAS_TWO_TABLES
    const auto two = hn::Load(Words(), magic + v / 2 * 2 * kLanes);
    const auto none = hn::Zero(Words());
    return v % 2 == 0 ? from_words<false>(none, two) : from_words<true>(none, two);
#else
    const hn::Rebind<std::uint32_t, Tag<T>> d;
    const auto words = hn::PromoteTo(Tag<std::uint64_t>(), hn::Load(d, magic + v * kLanes));
    return hn::BitCast(Tag<T>(), hn::ShiftLeft<32>(words));
#endif
  }
}

/// c + magic + negatives units of R times kFold rows, and the magic numbers (of binary64 their
/// upper words).
template <bool kHalf, int kFold, int R>
HWY_INLINE void start(const StepBlock<float>& s, const StepRounding& rounding, std::int64_t step,
                      std::int64_t row, const std::uint8_t* largest, std::uint32_t* magic,
                      Vector<float> (&acc)[R][kVectors]) {
  constexpr int kOfRow = kVectors / kFold;
  const Tag<float> d;
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t columns = lanes * kOfRow;
  const std::uint32_t* a_signs = s.a_signs + step * s.rows + row;
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = (r * kVectors + v) * lanes;
      const auto c = hn::Load(d, s.state + row * columns + i);
      const Starts from = starts<float, kHalf>(rounding, largest + i, hn::BitCast(dw, c),
                                               hn::Set(dw, a_signs[r * kFold + v / kOfRow]),
                                               s.b_signs + step * columns + v % kOfRow * lanes);
      hn::Store(from.magic, dw, magic + i);
      acc[r][v] = hn::Add(hn::BitCast(d, hn::Add(from.magic, from.negatives)), c);
    }
  }
}

/// The same; words take two vectors of columns at once.
template <bool kHalf, int kFold, int R>
HWY_INLINE void start(const StepBlock<double>& s, const StepRounding& rounding, std::int64_t step,
                      std::int64_t row, const std::uint16_t* largest, std::uint32_t* magic,
                      Vector<double> (&acc)[R][kVectors]) {
  constexpr int kOfRow = kVectors / kFold;
  static_assert(kOfRow % 2 == 0);
  const Tag<double> d;
  [[maybe_unused]] const Tag<std::uint64_t> du;
  const Words dw;
  [[maybe_unused]] const hn::Rebind<std::uint32_t, Tag<double>> dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const double* state = s.state + row * lanes * kOfRow;
  const std::uint32_t* a_signs = s.a_signs + step * s.rows + row;
  const std::uint32_t* b_signs = s.b_signs + step * lanes * kOfRow;
#if FP8LAB_HAS_TWO_TABLES
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; v += 2) {
      const std::int64_t i = r * width + v * lanes;
      const auto c0 = hn::Load(d, state + i);
      const auto c1 = hn::Load(d, state + i + lanes);
      const auto upper = hn::ConcatOdd(dw, hn::BitCast(dw, c1), hn::BitCast(dw, c0));
      const auto signs = hn::Set(dw, a_signs[r * kFold + v / kOfRow]);
      const Starts from =
          starts<double, kHalf>(rounding, largest + i, upper, signs, b_signs + v % kOfRow * lanes);
      hn::Store(from.magic, dw, magic + i);
      acc[r][v] = hn::Add(from_words<false>(from.negatives, from.magic), c0);
      acc[r][v + 1] = hn::Add(from_words<true>(from.negatives, from.magic), c1);
    }
  }
#else
  HWY_ALIGN std::uint32_t negatives[R * kMaxWidth];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; v += 2) {
      const std::int64_t i = r * width + v * lanes;
      const auto upper = hn::ConcatOdd(dw, hn::BitCast(dw, hn::Load(d, state + i + lanes)),
                                       hn::BitCast(dw, hn::Load(d, state + i)));
      const auto signs = hn::Set(dw, a_signs[r * kFold + v / kOfRow]);
      const Starts from =
          starts<double, kHalf>(rounding, largest + i, upper, signs, b_signs + v % kOfRow * lanes);
      hn::Store(from.magic, dw, magic + i);
      hn::Store(from.negatives, dw, negatives + i);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = r * width + v * lanes;
      const auto magic_bits = hn::BitCast(du, load_magic<double>(magic + r * width, v));
      const auto count = hn::PromoteTo(du, hn::Load(dh, negatives + i));
      acc[r][v] = hn::Add(hn::BitCast(d, hn::Add(magic_bits, count)), hn::Load(d, state + i));
    }
  }
#endif
}

/// FP16's value nearest to a sum, for binary32 that was rounded to odd or not at all.
template <class D>
HWY_INLINE hn::Vec<D> nearest_half(D d, hn::Vec<D> sum) {
  return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), sum));
}

/// How a sum ends: truncated to the output by way of binary32, by clearing bits of binary64 where
/// that gives the same, or rounded to FP16.
enum class End : std::uint8_t { truncated, in_place, half };

/// A finished sum as the next step's c: rounded to the output, with the lowest bit set (see
/// docs/lab/gemm.md, "one FMA per product"). An infinite c of FP16 stays.
template <End kEnd>
HWY_INLINE Vector<float> next_state(Vector<float> sum, Vector<float> c, const StepRounding& r) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const auto one = hn::Set(du, 1u);
  if constexpr (kEnd != End::half) {
    const auto kept = hn::Set(du, ~((1u << (23 - r.output_fraction_bits)) - 1u));
    return hn::BitCast(d, hn::OrAnd(one, hn::BitCast(du, sum), kept));
  } else {
    const auto next = hn::BitCast(d, hn::Or(hn::BitCast(du, nearest_half(d, sum)), one));
    const auto field = hn::Set(du, kExponentMask<float>);
    const auto infinite = hn::Eq(hn::And(hn::BitCast(du, c), field), field);
    return hn::IfThenElse(hn::RebindMask(d, infinite), c, next);
  }
}
template <End kEnd>
HWY_INLINE Vector<double> next_state(Vector<double> sum, Vector<double> c, const StepRounding& r) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const hn::Rebind<float, Tag<double>> df;
  const auto one = hn::Set(du, Word<double>{1});
  if constexpr (kEnd == End::in_place) {
    const auto kept = hn::Set(du, ~((Word<double>{1} << 29) - 1));
    return hn::BitCast(d, hn::OrAnd(one, hn::BitCast(du, sum), kept));
  } else if constexpr (kEnd == End::truncated) {
    const hn::Rebind<std::uint32_t, Tag<double>> df_bits;
    const auto kept = hn::Set(df_bits, ~((1u << (23 - r.output_fraction_bits)) - 1u));
    const auto rounded =
        hn::BitCast(df, hn::And(hn::BitCast(df_bits, hn::DemoteTo(df, sum)), kept));
    return hn::BitCast(d, hn::Or(hn::BitCast(du, hn::PromoteTo(d, rounded)), one));
  } else {
    // To odd in binary32: the lowest bit that is kept is set where bits below it are.
    const auto rest = hn::Set(du, (Word<double>{1} << 29) - 1);
    const auto bits = hn::BitCast(du, sum);
    const auto sticky =
        hn::And(hn::Add(hn::And(bits, rest), rest), hn::Set(du, Word<double>{1} << 29));
    const auto odd = hn::DemoteTo(df, hn::BitCast(d, hn::Or(bits, sticky)));
    const auto half = hn::PromoteTo(d, nearest_half(df, odd));
    const auto marked = hn::BitCast(d, hn::Or(hn::BitCast(du, half), one));
    const auto next = hn::IfThenElse(hn::IsInf(half), half, marked);
    return hn::IfThenElse(hn::IsInf(c), c, next);
  }
}

/// What a step's end leaves in the states of R times kFold rows.
template <typename T, End kEnd, int R>
HWY_INLINE void finish(const Vector<T> (&acc)[R][kVectors], const std::uint32_t* magic,
                       const StepRounding& rounding, T* state) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = r * width + v * lanes;
      const auto sum = hn::Sub(acc[r][v], load_magic<T>(magic + r * width, v));
      hn::Store(next_state<kEnd>(sum, hn::Load(d, state + i), rounding), d, state + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
