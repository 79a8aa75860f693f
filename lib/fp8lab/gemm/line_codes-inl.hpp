// Codes of a step of one column as they lie in memory, decoded in lanes along k; included once for
// each target.

#include <cstdint>
#include <type_traits>

#include "fp8lab/gemm/vector-inl.hpp"
#include "fp8lab/gemm/word_dots.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_LINE_CODES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_LINE_CODES_INL
#undef FP8LAB_GEMM_LINE_CODES_INL
#else
#define FP8LAB_GEMM_LINE_CODES_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

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
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < Base::kChunks; ++chunk) {
      const auto x = hn::LoadU(typename Base::CodeTag(), codes + chunk * Base::kChunk);
      const auto magnitude = this->magnitudes(x);
      range.add(magnitude);
      hn::Store(this->exponents(magnitude), typename Base::LaneTag(),
                exponents + chunk * Base::kChunk);
    }
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
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < Base::kChunks; ++chunk) {
      const auto x = hn::LoadU(typename Base::CodeTag(), codes + chunk * Base::kChunk);
      const auto magnitude = this->magnitudes(x);
      range.add(magnitude);
      hn::Store(this->exponents(magnitude), typename Base::LaneTag(),
                exponents + chunk * Base::kChunk);
    }
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

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
