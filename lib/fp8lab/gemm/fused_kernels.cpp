#include <cstdint>

#include "fp8lab/core/ceil_divide.hpp"
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

// What begins and ends a fused step of rows of a panel: docs/lab/gemm.md, "Fused steps".

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

// Fused steps of folded panels, whose vectors several rows of A share: docs/lab/gemm.md, "Few
// columns and rows".

/// The words of four terms of kFold rows, `stride` apart, each repeated to fill its part of a
/// vector.
template <int kFold, class D>
HWY_INLINE hn::Vec<D> load_rows(D d, const std::uint32_t* from, std::int64_t stride) {
  if constexpr (kFold == 1) {
    return hn::LoadDup128(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_rows<kFold / 2>(half, from + kFold / 2 * stride, stride),
                       load_rows<kFold / 2>(half, from, stride));
  }
}

/// Exponents of a folded panel's columns, in each of kFold parts of a vector.
template <int kFold, class D, typename E = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_columns(D d, const E* from) {
  if constexpr (hn::MaxLanes(d) * sizeof(E) == kFold * 16) {
    return hn::LoadDup128(d, from);
  } else {
    static_assert(kFold == 2);
    const hn::Half<D> half;
    const auto part = hn::LoadU(half, from);
    return hn::Combine(d, part, part);
  }
}

/// Raises largest exponents of R vectors of rows by those of term K of four, of which `words` has
/// the rows'.
template <typename T, int kFold, int K, int R>
HWY_INLINE void raise_exponents(const Exponent<T>* b, const Vector<std::uint32_t> (&words)[R],
                                Vector<Exponent<T>> (&m)[R]) {
  const Tag<Exponent<T>> d;
  const auto columns = static_cast<std::int64_t>(hn::Lanes(d)) / kFold;
  const auto e = load_columns<kFold>(d, b + K * columns);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r)
    m[r] = hn::Max(m[r], hn::Add(e, hn::BitCast(d, hn::Broadcast<K>(words[r]))));
}

/// The largest exponents of kFold rows a vector.
template <typename T, int kFold, int kTerms, int R>
HWY_INLINE void folded_exponents(const std::uint32_t* a, const Exponent<T>* b, int exponent_floor,
                                 Exponent<T>* largest) {
  const Tag<Exponent<T>> d;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<Exponent<T>> m[R];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) m[r] = hn::Set(d, static_cast<Exponent<T>>(exponent_floor));
  for (std::int64_t k = 0; k < kTerms; k += 4) {
    Vector<std::uint32_t> words[R];
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r)
      words[r] = load_rows<kFold>(Words(), a + r * kFold * kTerms + k, kTerms);
    const Exponent<T>* of_terms = b + k * width / kFold;
    raise_exponents<T, kFold, 0>(of_terms, words, m);
    raise_exponents<T, kFold, 1>(of_terms, words, m);
    raise_exponents<T, kFold, 2>(of_terms, words, m);
    raise_exponents<T, kFold, 3>(of_terms, words, m);
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) hn::Store(m[r], d, largest + r * width);
}

/// acc += a . b, R times kFold rows by one folded panel.
template <typename T, int kFold, int kTerms, int R>
HWY_INLINE void folded_multiply_add(const T* a, const T* b, Vector<T> (&acc)[R][kVectors]) {
  constexpr int kOfRow = kVectors / kFold;
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FP8LAB_UNROLL_BY_4
  for (int k = 0; k < kTerms; ++k) {
    Vector<T> column[kOfRow];
    FP8LAB_UNROLL
    for (int v = 0; v < kOfRow; ++v) column[v] = hn::Load(d, b + (k * kOfRow + v) * lanes);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = hn::MulAdd(hn::Set(d, a[(r * kFold + v / kOfRow) * kTerms + k]),
                               column[v % kOfRow], acc[r][v]);
    }
  }
}

/// The same of R vectors of rows: kFold rows share a vector of exponents, and each has a part of
/// the panel's vectors.
template <typename T, End kEnd, int kFold, int kTerms, int R>
HWY_INLINE void folded_rows(const StepBlock<T>& s, const StepRounding& rounding, std::int64_t step,
                            std::int64_t row) {
  const auto columns = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors / kFold;
  const std::int64_t at = (step * s.rows + row) * kTerms;
  const std::int64_t b_at = step * kTerms * columns;
  HWY_ALIGN Exponent<T> largest[R * kMaxWidth];
  HWY_ALIGN std::uint32_t magic[R * kMaxWidth];
  Vector<T> acc[R][kVectors];
  folded_exponents<T, kFold, kTerms, R>(s.a_exponents + at, s.b_exponents + b_at,
                                        rounding.exponent_floor, largest);
  start<kEnd == End::half, kFold, R>(s, rounding, step, row, largest, magic, acc);
  folded_multiply_add<T, kFold, kTerms, R>(s.a + at, s.b + b_at, acc);
  finish<T, kEnd, R>(acc, magic, rounding, s.state + row * columns);
}

/// The largest exponent among the products of each row with each column.
template <typename T, int R>
HWY_INLINE void largest_exponents(std::int64_t terms, const std::uint32_t* a, const Exponent<T>* b,
                                  int exponent_floor, Exponent<T>* largest) {
  const Tag<Exponent<T>> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  const auto floor = hn::Set(d, static_cast<Exponent<T>>(exponent_floor));
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
template <typename T, End kEnd, int R>
HWY_INLINE void fused_rows(const StepBlock<T>& s, const StepRounding& rounding, std::int64_t step,
                           std::int64_t row) {
  const auto width = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors;
  const std::int64_t at = step * s.rows + row;
  HWY_ALIGN Exponent<T> largest[R * kMaxWidth];
  HWY_ALIGN std::uint32_t magic[R * kMaxWidth];
  Vector<T> acc[R][kVectors];
  largest_exponents<T, R>(s.terms, s.a_exponents + at * s.terms,
                          s.b_exponents + step * s.terms * width, rounding.exponent_floor, largest);
  start<kEnd == End::half, 1, R>(s, rounding, step, row, largest, magic, acc);
  multiply_add<T, R>(s.terms, s.a + at * s.terms, s.b + step * s.terms * width, acc);
  finish<T, kEnd, R>(acc, magic, rounding, s.state + row * width);
}

/// Fetches a part of the next codes each time, all of them in `times`.
class Fetcher {
 public:
  HWY_INLINE Fetcher(const NextCodes& next, std::int64_t terms, std::int64_t times)
      : at_(next.codes),
        row_stride_(next.row_stride),
        bytes_(terms * next.term_bytes),
        rows_(next.rows),
        lines_(next.rows == 0 ? 0
                              : ceil_divide(next.rows * ceil_divide(bytes_, kCacheLine), times)) {}
  HWY_INLINE void some() {
    for (std::int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(at_ + byte_);
      byte_ += kCacheLine;
      if (byte_ < bytes_) continue;
      byte_ = 0;
      at_ += row_stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t kCacheLine = 64;
  const unsigned char* at_;
  std::int64_t row_stride_;
  std::int64_t bytes_;
  std::int64_t rows_;
  std::int64_t lines_;
  std::int64_t byte_ = 0;
};

/// All steps: `rows` takes kRows times kFold rows at once and, of what is left, kFold. It holds
/// copies: what is stored might be part of `s` for the compiler.
template <int kFold, typename T, class Rows>
HWY_INLINE void all_steps(const StepBlock<T>& s, const Rows& rows) {
  constexpr int kTogether = kRows * kFold;
  const std::int64_t groups = s.rows / kTogether + s.rows % kTogether / kFold;
  Fetcher fetcher(s.next, s.steps * s.terms, s.steps * groups);
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kTogether <= s.rows; row += kTogether) {
      fetcher.some();
      rows.template operator()<kRows>(step, row);
    }
    for (; row < s.rows; row += kFold) {
      fetcher.some();
      rows.template operator()<1>(step, row);
    }
  }
}

template <typename T, End kEnd>
void fused_steps(const StepBlock<T>& s, const StepRounding& rounding) {
  all_steps<1>(s, [s, rounding]<int R>(std::int64_t step, std::int64_t row)
                      HWY_ATTR { fused_rows<T, kEnd, R>(s, rounding, step, row); });
}

template <typename T, End kEnd, int kFold, int kTerms>
void folded_steps(const StepBlock<T>& s, const StepRounding& rounding) {
  all_steps<kFold>(s, [s, rounding]<int R>(std::int64_t step, std::int64_t row) HWY_ATTR {
    folded_rows<T, kEnd, kFold, kTerms, R>(s, rounding, step, row);
  });
}

/// How many rows may share a panel: the exponents of each fill a block of 16 bytes at least, and of
/// binary64 two vectors.
template <typename T>
constexpr int kMostFold = sizeof(T) == 4        ? HWY_MAX_BYTES / 16
                          : HWY_MAX_BYTES >= 32 ? 2
                                                : 1;

template <typename T, End kEnd, int kFold>
void steps_of_fold(const StepBlock<T>& s, const StepRounding& rounding) {
  if constexpr (kFold == 1) {
    fused_steps<T, kEnd>(s, rounding);
  } else {
    if (s.fold != kFold) return steps_of_fold<T, kEnd, kFold / 2>(s, rounding);
    if (s.terms == 32)
      folded_steps<T, kEnd, kFold, 32>(s, rounding);
    else
      folded_steps<T, kEnd, kFold, 16>(s, rounding);
  }
}

template <typename T>
void fused(const StepBlock<T>& s, const StepRounding& rounding) {
  if (rounding.half_output)
    steps_of_fold<T, End::half, kMostFold<T>>(s, rounding);
  else if (sizeof(T) == 8 && rounding.in_place)
    steps_of_fold<T, End::in_place, kMostFold<T>>(s, rounding);
  else
    steps_of_fold<T, End::truncated, kMostFold<T>>(s, rounding);
}

const FusedKernels* fused_kernels() {
  static const FusedKernels kTable{static_cast<std::int64_t>(hn::Lanes(Tag<float>())) * kVectors,
                                   static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors,
                                   kMostFold<float>,
                                   kMostFold<double>,
                                   fused<float>,
                                   fused<double>};
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

FP8LAB_TABLE_OF_TARGET(FusedKernels, fused_kernels)

}  // namespace fp8lab::gemm_detail
#endif
