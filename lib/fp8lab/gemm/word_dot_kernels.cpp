// Steps of 32-bit integers with lanes along k: docs/lab/gemm.md, "Few rows".

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "fp8lab/gemm/word_dots.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/word_dot_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/reduce-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "fp8lab/gemm/word_steps-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

// Codes of a step of one column as they lie in memory, decoded in lanes along k.

/// Codes that a vector takes at once, of 8 bits.
constexpr int kByteChunk = static_cast<int>(hn::MaxLanes(hn::CappedTag<std::uint8_t, 32>()));

HWY_INLINE auto add_exponents(auto x, auto y) {
  if constexpr (sizeof(hn::TFromV<decltype(x)>) == 4)
    return hn::Add(x, y);
  else
    return hn::SaturatedAdd(x, y);
}

/// Sums of more than 8 lanes are added up to 8, and stay integers.
template <class D>
using SumTag = hn::CappedTag<std::int32_t, hn::MaxLanes(D()) < 8 ? hn::MaxLanes(D()) : 8>;
template <class D>
HWY_INLINE hn::Vec<SumTag<D>> to_sum(D d, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) > 8) {
    const hn::Half<D> half;
    static_assert(hn::MaxLanes(half) == 8);
    return hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x));
  } else {
    (void)d;
    return x;
  }
}

/// What is the same of all storage: terms of a step of one column, `kTermsOfLine` of which are
/// read. Where it is bytes, each chunk's terms of even place come first among the values.
template <typename CodeType, int kTermsOfLine>
class Lines {
 public:
  using Code = CodeType;
  using Lane = std::make_signed_t<Code>;
  static constexpr int kTerms = kTermsOfLine;
  using CodeTag = hn::CappedTag<Code, kTerms>;
  using LaneTag = hn::RebindToSigned<CodeTag>;
  static constexpr int kChunk = static_cast<int>(hn::MaxLanes(CodeTag()));
  static constexpr int kChunks = kTerms / kChunk;
  static constexpr int kRun = sizeof(Code) == 1 ? kChunk / 2 : kChunk;
  using ValueTag = hn::CappedTag<float, kRun>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(ValueTag()));
  static constexpr int kValues = kTerms / kLanes;
  /// Of bytes: whether a vector of values holds terms of odd place.
  static constexpr bool is_odd(int v) { return v * kLanes % kChunk >= kRun; }

  explicit Lines(const WordDotLayout& layout) : layout_(layout.codes) {}

  /// What a column's codes reach: the largest magnitudes and the smallest of those that are not
  /// zero, less 1.
  class Range {
   public:
    HWY_INLINE explicit Range(const Code* from)
        : largest_(hn::Load(CodeTag(), from)),
          below_(hn::Load(CodeTag(), from + kWordDotBytes / sizeof(Code))) {}
    HWY_INLINE void add(hn::Vec<CodeTag> magnitude) {
      largest_ = hn::Max(largest_, magnitude);
      below_ = hn::Min(below_, hn::Sub(magnitude, hn::Set(CodeTag(), Code{1})));
    }
    HWY_INLINE void store(Code* to) const {
      hn::Store(largest_, CodeTag(), to);
      hn::Store(below_, CodeTag(), to + kWordDotBytes / sizeof(Code));
    }

   private:
    hn::Vec<CodeTag> largest_;
    hn::Vec<CodeTag> below_;
  };

 protected:
  /// The stored exponents of magnitudes; that of zeros is below all others.
  [[nodiscard]] HWY_INLINE hn::Vec<LaneTag> exponents(hn::Vec<CodeTag> magnitude) const {
    const CodeTag d;
    const LaneTag di;
    const auto field =
        hn::Max(hn::ShiftRightSame(magnitude, layout_.mantissa_bits), hn::Set(d, Code{1}));
    const auto biased =
        hn::Sub(hn::BitCast(di, field), hn::Set(di, static_cast<Lane>(layout_.bias)));
    const auto zero = hn::RebindMask(di, hn::Eq(magnitude, hn::Zero(d)));
    return hn::IfThenElse(zero, hn::Set(di, Lane{kWordExponentOfZero}), biased);
  }
  [[nodiscard]] HWY_INLINE hn::Vec<CodeTag> magnitudes(hn::Vec<CodeTag> codes) const {
    return hn::And(codes, hn::Set(CodeTag(), static_cast<Code>((1u << layout_.sign_bit) - 1)));
  }
  /// Exponents of a line's codes, which `range` sees.
  HWY_INLINE void store_exponents(const Code* codes, Lane* to, Range& range) const {
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto magnitude = magnitudes(hn::LoadU(CodeTag(), codes + chunk * kChunk));
      range.add(magnitude);
      hn::Store(exponents(magnitude), LaneTag(), to + chunk * kChunk);
    }
  }

  CodeLayout layout_;
};

/// FP16.
template <int kTermsOfLine>
class HalfLines : public Lines<std::uint16_t, kTermsOfLine> {
  using Base = Lines<std::uint16_t, kTermsOfLine>;

 public:
  using Base::Base;
  HWY_INLINE void decode(const std::uint16_t* codes, float* values, std::int16_t* exponents,
                         typename Base::Range& range) const {
    const typename Base::ValueTag d;
    const hn::Rebind<hwy::float16_t, typename Base::ValueTag> dh;
    FP8LAB_UNROLL
    for (int v = 0; v < Base::kValues; ++v) {
      const auto* from = reinterpret_cast<const hwy::float16_t*>(codes) + v * Base::kLanes;
      hn::Store(hn::PromoteTo(d, hn::LoadU(dh, from)), d, values + v * Base::kLanes);
    }
    this->store_exponents(codes, exponents, range);
  }
};

/// BF16: the upper halves of binary32.
template <int kTermsOfLine>
class UpperHalfLines : public Lines<std::uint16_t, kTermsOfLine> {
  using Base = Lines<std::uint16_t, kTermsOfLine>;

 public:
  using Base::Base;
  HWY_INLINE void decode(const std::uint16_t* codes, float* values, std::int16_t* exponents,
                         typename Base::Range& range) const {
    const typename Base::ValueTag d;
    const hn::RebindToUnsigned<typename Base::ValueTag> du;
    const hn::Rebind<std::uint16_t, typename Base::ValueTag> dh;
    FP8LAB_UNROLL
    for (int v = 0; v < Base::kValues; ++v) {
      const auto x = hn::PromoteTo(du, hn::LoadU(dh, codes + v * Base::kLanes));
      hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(x)), d, values + v * Base::kLanes);
    }
    this->store_exponents(codes, exponents, range);
  }
};

/// TF32: words of binary32, whose lowest bits do not count.
template <int kTermsOfLine>
class WordLines : public Lines<std::uint32_t, kTermsOfLine> {
  using Base = Lines<std::uint32_t, kTermsOfLine>;

 public:
  using Base::Base;
  HWY_INLINE void decode(const std::uint32_t* codes, float* values, std::int32_t* exponents,
                         typename Base::Range& range) const {
    const typename Base::CodeTag d;
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < Base::kChunks; ++chunk) {
      const auto x = hn::ShiftRightSame(hn::LoadU(d, codes + chunk * Base::kChunk),
                                        this->layout_.dropped_bits);
      const auto magnitude = this->magnitudes(x);
      range.add(magnitude);
      hn::Store(this->exponents(magnitude), typename Base::LaneTag(),
                exponents + chunk * Base::kChunk);
      hn::Store(hn::ShiftLeftSame(x, this->layout_.dropped_bits), d,
                reinterpret_cast<std::uint32_t*>(values) + chunk * Base::kChunk);
    }
  }
};

/// Codes of 8 bits or fewer whose fields FP16 has room for: values are 2^(bias - 15) times what
/// they stand for.
template <int kTermsOfLine>
class ByteLines : public Lines<std::uint8_t, kTermsOfLine> {
  using Base = Lines<std::uint8_t, kTermsOfLine>;
  using CodeTag = typename Base::CodeTag;
  using HalfTag = hn::Repartition<std::uint16_t, CodeTag>;

 public:
  HWY_INLINE explicit ByteLines(const WordDotLayout& layout)
      : Base(layout),
        magnitude_(static_cast<std::uint16_t>((1 << layout.codes.sign_bit) - 1)),
        sign_(static_cast<std::uint16_t>(1 << layout.codes.sign_bit)) {}

  HWY_INLINE void decode(const std::uint8_t* codes, float* values, std::int8_t* exponents,
                         typename Base::Range& range) const {
    const CodeTag d;
    const HalfTag d16;
    HWY_ALIGN hwy::float16_t halves[kTermsOfLine];
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < Base::kChunks; ++chunk) {
      const auto x = hn::LoadU(d, codes + chunk * Base::kChunk);
      const auto nan = hn::Set(d, static_cast<std::uint8_t>(this->layout_.nan_code));
      const auto magnitude = hn::Or(this->magnitudes(x), hn::IfThenElseZero(hn::Eq(x, nan), nan));
      range.add(magnitude);
      hn::Store(exponents_of(magnitude), typename Base::LaneTag(),
                exponents + chunk * Base::kChunk);
      const auto words = hn::BitCast(d16, x);
      const auto even = hn::And(words, hn::Set(d16, std::uint16_t{0xff}));
      const auto odd = hn::ShiftRight<8>(words);
      store_half(even, halves + chunk * Base::kChunk);
      store_half(odd, halves + chunk * Base::kChunk + Base::kRun);
    }
    const typename Base::ValueTag df;
    const hn::Rebind<hwy::float16_t, typename Base::ValueTag> dh;
    FP8LAB_UNROLL
    for (int v = 0; v < Base::kValues; ++v)
      hn::Store(hn::PromoteTo(df, hn::Load(dh, halves + v * Base::kLanes)), df,
                values + v * Base::kLanes);
  }

 private:
  HWY_INLINE void store_half(hn::Vec<HalfTag> x, hwy::float16_t* to) const {
    const HalfTag d;
    const auto magnitude =
        hn::ShiftLeftSame(hn::And(x, hn::Set(d, magnitude_)), 10 - this->layout_.mantissa_bits);
    const auto sign = hn::ShiftLeftSame(hn::And(x, hn::Set(d, sign_)), 15 - this->layout_.sign_bit);
    const hn::Repartition<hwy::float16_t, CodeTag> dh;
    hn::Store(hn::BitCast(dh, hn::Or(magnitude, sign)), dh, to);
  }
  /// There is no shift of bytes.
  [[nodiscard]] HWY_INLINE hn::Vec<typename Base::LaneTag> exponents_of(
      hn::Vec<CodeTag> magnitude) const {
    const CodeTag d;
    const HalfTag d16;
    const typename Base::LaneTag di;
    const int m = this->layout_.mantissa_bits;
    const auto shifted = hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(d16, magnitude), m));
    const auto mask =
        hn::Set(d, static_cast<std::uint8_t>((1 << (this->layout_.sign_bit - m)) - 1));
    const auto field = hn::Max(hn::And(shifted, mask), hn::Set(d, std::uint8_t{1}));
    const auto biased =
        hn::Sub(hn::BitCast(di, field), hn::Set(di, static_cast<std::int8_t>(this->layout_.bias)));
    const auto zero = hn::RebindMask(di, hn::Eq(magnitude, hn::Zero(d)));
    return hn::IfThenElse(zero, hn::Set(di, std::int8_t{kWordExponentOfZero}), biased);
  }

  std::uint16_t magnitude_;
  std::uint16_t sign_;
};

using SignedWords = hn::RebindToSigned<Words>;
using FloatVector = hn::Vec<Floats>;
using IntVector = hn::Vec<SignedWords>;

// Columns that are at work together: those of one group wait for their largest exponents while
// the other's are found.
constexpr int kGroups = 2;
constexpr int kBlock = kGroups * kColumns;
// Steps of one column that are decoded one after the other: a cache line or more of its codes.
constexpr std::int64_t kSteps = 4;

/// Reduces 8 columns' vectors of up to 32 bytes to two words a column, which hold the 32-bit words
/// of even and of odd place.
template <class Combine, class D>
HWY_INLINE void reduce_by_parity(D d, const hn::Vec<D> (&columns)[kColumns],
                                 IntVector (&even)[kParts], IntVector (&odd)[kParts]) {
  const hn::Repartition<std::uint32_t, D> d32;
  const hn::Repartition<std::uint64_t, D> d64;
  hn::Vec<D> pairs[4];
  combine_pairs<Combine>(d, columns, pairs);
  hn::Vec<D> fours[2][2];  // [place][columns]
  FP8LAB_UNROLL
  for (int i = 0; i < 2; ++i) {
    const auto x = hn::BitCast(d64, pairs[2 * i]);
    const auto y = hn::BitCast(d64, pairs[2 * i + 1]);
    fours[0][i] = hn::BitCast(d, hn::InterleaveLower(d64, x, y));
    fours[1][i] = hn::BitCast(d, hn::InterleaveUpper(d64, x, y));
  }
  FP8LAB_UNROLL
  for (int place = 0; place < 2; ++place) {
    auto& to = place == 0 ? even : odd;
    const auto& four = fours[place];
    if constexpr (kWords != kColumns) {
      to[0] = hn::BitCast(SignedWords(), four[0]);
      to[kParts - 1] = hn::BitCast(SignedWords(), four[1]);
    } else if constexpr (hn::MaxLanes(d32) == kColumns) {
      to[0] = hn::BitCast(SignedWords(), Combine::of(hn::ConcatLowerLower(d, four[1], four[0]),
                                                     hn::ConcatUpperUpper(d, four[1], four[0])));
    } else {
      const hn::Half<SignedWords> half;
      to[0] = hn::Combine(SignedWords(), hn::BitCast(half, four[1]), hn::BitCast(half, four[0]));
    }
  }
}

/// The largest of the signed lanes from `place` on, each `kStride` after the other, of each word of
/// exponents: as fields, biased.
template <typename Code, int kStride>
HWY_INLINE IntVector field_of_lanes(IntVector words, int place) {
  constexpr int kBits = 8 * sizeof(Code);
  const SignedWords d;
  const hn::Repartition<std::make_signed_t<Code>, SignedWords> dc;
  for (int bits = 16; bits >= kStride * kBits; bits /= 2)
    words = hn::BitCast(
        d, hn::Max(hn::BitCast(dc, words), hn::BitCast(dc, hn::ShiftRightSame(words, bits))));
  // Their values have up to nine bits with the sign, a byte's eight.
  auto exponent = hn::ShiftLeftSame(words, 32 - kBits - place * kBits);
  exponent = hn::ShiftRightSame(exponent, 32 - kBits);
  return hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(d, 127)));
}

/// What a block's rows and columns wait for, [alignment][row][column].
template <int kAlignments>
struct Aligned {
  HWY_ALIGN float scale[kAlignments][kMostWordDotRows][kBlock];
  HWY_ALIGN std::int32_t field[kAlignments][kMostWordDotRows][kBlock];
};

/// Steps with one alignment: fused ones, with which c is aligned, or CDNA3's, whose c comes later.
/// Their kinds differ once for many columns, so that it is asked while the kernel runs.
struct PlainSteps {
  static constexpr int kAlignments = 1;

  static HWY_INLINE IntVector aligned_with(IntVector e, FloatVector c, const WordDotBlock& s,
                                           const WordRounding& rounding) {
    if (s.two_stage) return e;
    return hn::Max(e, rounding.half_output ? alignment_of_c<true>(c, rounding)
                                           : alignment_of_c<false>(c, rounding));
  }
  static HWY_INLINE void finish(const IntVector (&sum)[2], const IntVector (&e)[1], float* c,
                                const WordDotBlock& s, const WordRounding& rounding) {
    const Floats df;
    const auto before = hn::Load(df, c);
    if (s.two_stage) {
      const IntVector all[1] = {hn::Add(sum[0], sum[1])};
      if (rounding.short_second_stage) {
        const FloatVector scale[1] = {
            fused_scale<FloatVector>(e[0], rounding.alignment_fraction_bits)};
        const FloatVector of_c[1] = {scale_with(scale[0], field_of(before), kBitsOfC)};
        return short_second_stages<FloatVector>(all, scale, of_c, c);
      }
      return hn::Store(second_stage<false>(all[0], e[0], before, rounding), df, c);
    }
    const int fraction = rounding.alignment_fraction_bits;
    const FloatVector scale[1] = {fused_scale<FloatVector>(e[0], fraction)};
    const IntVector first[1] = {hn::Add(sum[0], truncated(hn::Mul(before, scale[0])))};
    const IntVector rest[1] = {sum[1]};
    const IntVector both[1] = {hn::Add(first[0], sum[1])};
    const bool half = rounding.half_output;
    if (rounding.two_sums)
      return half ? half_results<true>(first, rest, scale, c, c)
                  : float_results<true>(first, rest, scale, c, rounding);
    return half ? half_results<false>(both, both, scale, c, c)
                : float_results<false>(both, both, scale, c, rounding);
  }
};
/// CDNA3's with alignments of even and odd terms.
struct EvenOddSteps {
  static constexpr int kAlignments = 2;

  static HWY_INLINE IntVector aligned_with(IntVector e, FloatVector, const WordDotBlock&,
                                           const WordRounding&) {
    return e;
  }
  static HWY_INLINE void finish(const IntVector (&sum)[2], const IntVector (&e)[2], float* c,
                                const WordDotBlock&, const WordRounding& rounding) {
    const Floats df;
    hn::Store(even_odd_result(sum[0], sum[1], e[0], e[1], hn::Load(df, c), rounding), df, c);
  }
};

/// What the scales of one row and of some columns add to their products' exponents, as fields:
/// nothing to those of zeros, which are far below all others.
HWY_INLINE IntVector scale_fields(const WordDotBlock& s, std::int64_t step, std::int64_t row,
                                  std::int64_t column, IntVector e) {
  const SignedWords d;
  const auto a = hn::Set(d, s.scale_a.exponent[step * s.scale_a.stride + row]);
  const auto b = hn::LoadU(d, s.scale_b.exponent + step * s.scale_b.stride + column);
  const auto zero = hn::Lt(e, hn::Set(d, field(127 + kWordExponentOfZero / 2)));
  return hn::IfThenZeroElse(zero, hn::ShiftLeft<23>(hn::Add(a, b)));
}

/// What products are multiplied by under an alignment, from exponents without their scales. Where
/// no product reaches the alignment, any number that is small enough.
HWY_INLINE FloatVector scale_of_products(IntVector e, const WordRounding& rounding) {
  const SignedWords d;
  const auto scale = hn::BitCast(d, fused_scale<FloatVector>(e, rounding.alignment_fraction_bits));
  return hn::BitCast(Floats(), hn::Max(scale, hn::Set(d, field(1))));
}

/// The alignments of one row with a group of columns.
template <class Lines, class Steps>
HWY_INLINE void align(const WordDotBlock& s, const WordRounding& rounding, std::int64_t step,
                      std::int64_t row, std::int64_t column, int group,
                      const typename Lines::Lane* b, Aligned<Steps::kAlignments>& to) {
  using Lane = typename Lines::Lane;
  const typename Lines::LaneTag d;
  const SignedWords dw;
  const Floats df;
  const auto* a = static_cast<const Lane*>(s.a.exponents) + (step * s.rows + row) * Lines::kTerms;
  hn::Vec<typename Lines::LaneTag> most[kColumns];
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < Lines::kChunks; ++chunk) {
      const auto of_b = hn::Load(d, b + j * Lines::kTerms + chunk * Lines::kChunk);
      const auto of_a = hn::Load(d, a + chunk * Lines::kChunk);
      const auto sum = add_exponents(of_a, of_b);
      most[j] = chunk == 0 ? sum : hn::Max(most[j], sum);
    }
  }
  IntVector even[kParts];
  IntVector odd[kParts];
  reduce_by_parity<Larger>(d, most, even, odd);
  const hn::Repartition<Lane, SignedWords> dl;
  const auto floor =
      hn::Set(dw, field(127 + (s.two_stage ? kWordExponentFloor : rounding.exponent_floor)));
  FP8LAB_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const auto all = hn::BitCast(dw, hn::Max(hn::BitCast(dl, even[p]), hn::BitCast(dl, odd[p])));
    const std::int64_t j = column + p * kWords;
    FP8LAB_UNROLL
    for (int i = 0; i < Steps::kAlignments; ++i) {
      const auto c = hn::Load(df, s.state + row * s.width + j);
      const auto products = field_of_lanes<typename Lines::Code, Steps::kAlignments>(all, i);
      const std::int64_t at = group * kColumns + p * kWords;
      if (s.scaled) {
        const auto change = scale_fields(s, step, row, j, products);
        const auto e =
            Steps::aligned_with(hn::Max(hn::Add(products, change), floor), c, s, rounding);
        hn::Store(scale_of_products(hn::Sub(e, change), rounding), df, &to.scale[i][row][at]);
        hn::Store(e, dw, &to.field[i][row][at]);
      } else {
        const auto e = Steps::aligned_with(hn::Max(products, floor), c, s, rounding);
        hn::Store(fused_scale<FloatVector>(e, rounding.alignment_fraction_bits), df,
                  &to.scale[i][row][at]);
        hn::Store(e, dw, &to.field[i][row][at]);
      }
    }
  }
}

/// The sums of one row with a group of columns, and what its step makes of them.
template <class Lines, class Steps>
HWY_INLINE void add(const WordDotBlock& s, const WordRounding& rounding, std::int64_t step,
                    std::int64_t row, std::int64_t column, int group, const float* b,
                    const Aligned<Steps::kAlignments>& from) {
  const typename Lines::ValueTag d;
  const hn::RebindToSigned<typename Lines::ValueTag> di;
  const SignedWords dw;
  const float* a = s.a.values + (step * s.rows + row) * Lines::kTerms;
  constexpr int kSums = Steps::kAlignments;
  hn::Vec<SumTag<decltype(di)>> sums[kSums][kColumns];
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    FP8LAB_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const auto scale = hn::Set(d, from.scale[i][row][group * kColumns + j]);
      auto sum = hn::Zero(di);
      FP8LAB_UNROLL
      for (int v = 0; v < Lines::kValues; ++v) {
        if (kSums == 2 && Lines::is_odd(v) != (i == 1)) continue;
        const auto product = hn::Mul(hn::Load(d, b + j * Lines::kTerms + v * Lines::kLanes),
                                     hn::Load(d, a + v * Lines::kLanes));
        sum = hn::Add(sum, truncated(hn::Mul(product, scale)));
      }
      sums[i][j] = to_sum(di, sum);
    }
  }
  IntVector even[kSums][kParts];
  IntVector odd[kSums][kParts];
  FP8LAB_UNROLL
  for (int i = 0; i < kSums; ++i)
    reduce_by_parity<Sum>(SumTag<decltype(di)>(), sums[i], even[i], odd[i]);
  FP8LAB_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t at = group * kColumns + p * kWords;
    IntVector sum[2] = {even[0][p], odd[0][p]};
    IntVector e[kSums];
    FP8LAB_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (kSums == 2) sum[i] = hn::Add(even[i][p], odd[i][p]);
      e[i] = hn::Load(dw, &from.field[i][row][at]);
    }
    Steps::finish(sum, e, s.state + row * s.width + column + p * kWords, s, rounding);
  }
}

/// Some steps of a block of columns, decoded.
template <class Lines>
struct Decoded {
  HWY_ALIGN float values[kSteps][kBlock * Lines::kTerms];
  HWY_ALIGN typename Lines::Lane exponents[kSteps][kBlock * Lines::kTerms];
};

template <class Lines>
HWY_INLINE void decode(const WordDotBlock& s, const Lines& lines, std::int64_t step,
                       std::int64_t steps, std::int64_t column, Decoded<Lines>& to) {
  using Code = typename Lines::Code;
  for (std::int64_t j = 0; j < kBlock; ++j) {
    const auto* codes =
        reinterpret_cast<const Code*>(s.codes + (column + j) * s.code_stride) + step * s.terms;
    auto* ranges = reinterpret_cast<Code*>(s.ranges + (column + j) * 2 * kWordDotBytes);
    typename Lines::Range range(ranges);
    constexpr std::int64_t kBytes = sizeof(Code);
    fetch_soon(s.next_codes + (column + j) * s.next_stride + step * s.terms * kBytes,
               steps * s.terms * kBytes);
    for (std::int64_t i = 0; i < steps; ++i)
      lines.decode(codes + i * s.terms, to.values[i] + j * Lines::kTerms,
                   to.exponents[i] + j * Lines::kTerms, range);
    range.store(ranges);
  }
}

template <class Lines, class Steps>
void word_dots(const WordDotBlock& from, const WordRounding& given) {
  const WordDotBlock s = from;  // what is stored might be part of `from` for the compiler
  const WordRounding rounding = given;
  const Lines lines(s.layout);
  Decoded<Lines> decoded;
  Aligned<Steps::kAlignments> aligned;
  for (std::int64_t column = 0; column < s.width; column += kBlock)
    for (std::int64_t first = 0; first < s.steps; first += kSteps) {
      const std::int64_t steps = std::min(kSteps, s.steps - first);
      decode(s, lines, first, steps, column, decoded);
      for (std::int64_t i = 0; i < steps; ++i) {
        for (std::int64_t row = 0; row < s.rows; ++row)
          for (int group = 0; group < kGroups; ++group)
            align<Lines, Steps>(s, rounding, first + i, row, column + group * kColumns, group,
                                decoded.exponents[i] + group * kColumns * Lines::kTerms, aligned);
        for (std::int64_t row = 0; row < s.rows; ++row)
          for (int group = 0; group < kGroups; ++group)
            add<Lines, Steps>(s, rounding, first + i, row, column + group * kColumns, group,
                              decoded.values[i] + group * kColumns * Lines::kTerms, aligned);
      }
    }
}

void plain(const WordDotBlock& s, const WordRounding& r) {
  const bool few = s.layout.terms == kWordDotBytes / 2 / s.layout.code_bytes();
  switch (s.layout.kind) {
    case LineCodes::halves:
      return few ? word_dots<HalfLines<8>, PlainSteps>(s, r)
                 : word_dots<HalfLines<16>, PlainSteps>(s, r);
    case LineCodes::upper_halves:
      return few ? word_dots<UpperHalfLines<8>, PlainSteps>(s, r)
                 : word_dots<UpperHalfLines<16>, PlainSteps>(s, r);
    case LineCodes::words:
      return few ? word_dots<WordLines<4>, PlainSteps>(s, r)
                 : word_dots<WordLines<8>, PlainSteps>(s, r);
    default:
      return few ? word_dots<ByteLines<16>, PlainSteps>(s, r)
                 : word_dots<ByteLines<32>, PlainSteps>(s, r);
  }
}

void even_odd(const WordDotBlock& s, const WordRounding& r) {
  if (s.layout.terms == 16)
    word_dots<ByteLines<16>, EvenOddSteps>(s, r);
  else
    word_dots<ByteLines<32>, EvenOddSteps>(s, r);
}

const WordDotKernels* word_dot_kernels() {
  static const WordDotKernels kTable{kByteChunk, plain, even_odd};
  return &kTable;
}

#else
const WordDotKernels* word_dot_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(WordDotKernels, word_dot_kernels)

}  // namespace fp8lab::gemm_detail
#endif
