#include <algorithm>
#include <cmath>
#include <cstring>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/decode_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

HWY_INLINE Vector<std::uint32_t> load_words(Tag<std::uint32_t> d, const std::uint32_t* from) {
  return hn::LoadU(d, from);
}
template <typename Code>
HWY_INLINE Vector<std::uint32_t> load_words(Tag<std::uint32_t> d, const Code* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Code, Tag<std::uint32_t>>(), from));
}
HWY_INLINE Vector<std::uint64_t> load_words(Tag<std::uint64_t> d, const std::uint32_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint32_t, Tag<std::uint64_t>>(), from));
}
template <typename Code>
HWY_INLINE Vector<std::uint64_t> load_words(Tag<std::uint64_t> d, const Code* from) {
  const hn::Rebind<std::uint32_t, Tag<std::uint64_t>> d32;
  const hn::Rebind<Code, Tag<std::uint64_t>> dc;
  return hn::PromoteTo(d, hn::PromoteTo(d32, hn::LoadU(dc, from)));
}

HWY_INLINE Vector<std::uint32_t> low_words(Vector<std::uint32_t> x) { return x; }
HWY_INLINE hn::Vec<hn::Rebind<std::uint32_t, Tag<std::uint64_t>>> low_words(
    Vector<std::uint64_t> x) {
  return hn::TruncateTo(hn::Rebind<std::uint32_t, Tag<std::uint64_t>>(), x);
}

/// Decodes vectors of codes of one layout, all set up once.
template <typename T>
class Decoder {
 public:
  using Bits = Vector<Word<T>>;

  /// Values are multiplied by `stretch` and at least `tiny`, before the sign.
  HWY_INLINE Decoder(const CodeLayout& s, T stretch, T tiny, int exponent_bias)
      : mantissa_bits_(s.mantissa_bits),
        sign_bit_(s.sign_bit),
        dropped_bits_(s.dropped_bits),
        magnitude_mask_((Word<T>{1} << s.sign_bit) - 1),
        rebias_(static_cast<Word<T>>(kExponentBias<T> - s.bias) << kMantissaBits<T>),
        smallest_normal_(static_cast<Word<T>>(kExponentBias<T> + 1 - s.bias) << kMantissaBits<T>),
        unbias_(static_cast<Word<T>>(kExponentBias<T> - exponent_bias) << kMantissaBits<T>),
        stretch_(stretch),
        tiny_(tiny) {}

  template <typename Code>
  HWY_INLINE void load(const Code* from) {
    const Tag<T> d;
    const Tag<Word<T>> du;
    const Tag<hwy::MakeSigned<T>> di;
    codes_ = load_words(du, from);
    if constexpr (sizeof(Code) == 4) codes_ = hn::ShiftRightSame(codes_, dropped_bits_);
    magnitude_ = hn::And(codes_, hn::Set(du, magnitude_mask_));
    // A subnormal is read with a hidden bit, which is taken away again.
    const auto subnormal =
        hn::Lt(hn::BitCast(di, magnitude_), hn::Set(di, hwy::MakeSigned<T>{1} << mantissa_bits_));
    const auto bits = hn::Add(hn::ShiftLeftSame(magnitude_, kMantissaBits<T> - mantissa_bits_),
                              hn::Set(du, rebias_));
    const auto hidden = hn::BitCast(
        du, hn::IfThenElseZero(subnormal, hn::Set(di, hwy::MakeSigned<T>{1} << kMantissaBits<T>)));
    field_ = hn::Add(bits, hidden);
    value_ = hn::Sub(hn::BitCast(d, field_),
                     hn::IfThenElseZero(hn::RebindMask(d, subnormal),
                                        hn::BitCast(d, hn::Set(du, smallest_normal_))));
  }

  [[nodiscard]] HWY_INLINE Vector<T> values() const {
    const Tag<T> d;
    const Tag<Word<T>> du;
    const auto kept = hn::Max(hn::Mul(value_, hn::Set(d, stretch_)), hn::Set(d, tiny_));
    return hn::BitCast(d, hn::Or(hn::BitCast(du, kept), signs()));
  }
  /// Biased exponents; 0 for zeros.
  [[nodiscard]] HWY_INLINE Bits exponents() const {
    const Tag<Word<T>> du;
    const auto biased = hn::ShiftRight<kMantissaBits<T>>(hn::Sub(field_, hn::Set(du, unbias_)));
    return hn::IfThenZeroElse(hn::Eq(magnitude_, hn::Zero(du)), biased);
  }
  /// The highest bit set for negative codes.
  [[nodiscard]] HWY_INLINE Bits signs() const {
    const Tag<Word<T>> du;
    constexpr int kHighest = 8 * sizeof(T) - 1;
    return hn::And(hn::ShiftLeftSame(codes_, kHighest - sign_bit_),
                   hn::Set(du, Word<T>{1} << kHighest));
  }

 private:
  int mantissa_bits_;
  int sign_bit_;
  int dropped_bits_;
  Word<T> magnitude_mask_;
  Word<T> rebias_;
  Word<T> smallest_normal_;
  Word<T> unbias_;
  T stretch_;
  T tiny_;
  Bits codes_;
  Bits magnitude_;
  Bits field_;
  Vector<T> value_;
};

/// Exponents of a float panel's row from its 8-bit codes at once.
HWY_INLINE void decode_exponents(const CodeLayout s, const std::uint8_t* codes,
                                 std::uint8_t* exponents) {
  const Tag<std::uint8_t> d;
  const Tag<std::uint16_t> d16;
  const auto magnitude =
      hn::And(hn::LoadU(d, codes), hn::Set(d, static_cast<std::uint8_t>((1 << s.sign_bit) - 1)));
  const auto shifted =
      hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(d16, magnitude), s.mantissa_bits));
  const auto field = hn::And(
      shifted, hn::Set(d, static_cast<std::uint8_t>((1 << (s.sign_bit - s.mantissa_bits)) - 1)));
  const auto biased = hn::Add(hn::Max(field, hn::Set(d, std::uint8_t{1})),
                              hn::Set(d, static_cast<std::uint8_t>(kFloatBiasB - s.bias)));
  hn::Store(hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d)), biased), d, exponents);
}

/// Terms whose signs a byte holds, and how often a fused step may have these.
constexpr std::int64_t kSignsOfGroup = 8;
constexpr std::int64_t kSignGroups = 32 / kSignsOfGroup;

/// Whether FP16 has room for all fields of 8-bit codes, infinities excepted.
bool has_half_fields(const CodeLayout& s) {
  return s.sign_bit == 7 && (s.mantissa_bits == 3 || (s.mantissa_bits == 2 && s.bias <= 15));
}

/// A fused float panel's step of such codes, by way of FP16: the same fields, and what a code
/// stands for is a power of two times that. Zeros become positive, and their signs with them.
template <int kMantissa>
HWY_INLINE void decode_half_step(const PanelCodes<float>& s, std::int64_t step) {
  const Tag<std::uint8_t> d8;
  const Tag<float> d;
  const Tag<std::int16_t> d16;
  const Tag<std::uint32_t> d32;
  const hn::Rebind<std::int8_t, Tag<std::int16_t>> dc;
  const hn::Rebind<std::uint8_t, Tag<std::uint32_t>> db;
  const hn::Repartition<hwy::float16_t, Tag<std::int16_t>> dh;
  const hn::Rebind<hwy::float16_t, Tag<float>> dv;
  constexpr auto kFields = static_cast<std::int16_t>(kMantissa == 3 ? 0xbf80 : 0xff00);
  const CodeLayout layout = s.layout;
  const std::int64_t terms = s.terms;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const std::uint8_t* codes = s.codes + step * terms * width;
  float* values = s.values + step * terms * width;
  std::uint8_t* exponents = s.exponents + step * terms * width;
  const auto scale = hn::Set(d, std::ldexp(kStretchFloat, 15 - layout.bias));
  const auto tiny = hn::Set(d, kTinyFloat);
  const auto negative_zero = hn::Set(d8, std::uint8_t{0x80});
  HWY_ALIGN std::uint8_t used[kMaxWidth];
  HWY_ALIGN hwy::float16_t halves[kMaxWidth];
  HWY_ALIGN std::uint8_t signs[kSignGroups][kMaxWidth];
  auto group = hn::Zero(d8);
  for (std::int64_t t = 0; t < terms; ++t) {
    const auto code = hn::LoadU(d8, codes + t * width);
    const auto x = hn::IfThenZeroElse(hn::Eq(code, negative_zero), code);
    hn::Store(x, d8, used);
    decode_exponents(layout, used, exponents + t * width);
    // Half of an even byte: a group's terms leave the lowest bit for the last.
    group = hn::OrAnd(hn::AverageRound(group, hn::Zero(d8)), x, negative_zero);
    if (t % kSignsOfGroup == kSignsOfGroup - 1) {
      hn::Store(group, d8, signs[t / kSignsOfGroup]);
      group = hn::Zero(d8);
    }
    FP8LAB_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto* from = reinterpret_cast<const std::int8_t*>(used) + i * 2 * lanes;
      const auto wide = hn::PromoteTo(d16, hn::Load(dc, from));
      const auto fields = hn::And(hn::ShiftLeft<10 - kMantissa>(wide), hn::Set(d16, kFields));
      hn::Store(hn::BitCast(dh, fields), dh, halves + i * 2 * lanes);
    }
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto half = hn::PromoteTo(d, hn::Load(dv, halves + v * lanes));
      hn::Store(hn::MulAdd(half, scale, tiny), d, values + t * width + v * lanes);
    }
  }
  const std::int64_t groups = ceil_divide(terms, kSignsOfGroup);
  if (terms % kSignsOfGroup != 0) {
    for (std::int64_t t = terms; t < groups * kSignsOfGroup; ++t)
      group = hn::AverageRound(group, hn::Zero(d8));
    hn::Store(group, d8, signs[groups - 1]);
  }
  for (int v = 0; v < kVectors; ++v) {
    auto words = hn::Zero(d32);
    for (int i = 0; i < static_cast<int>(groups); ++i) {
      const auto bytes = hn::PromoteTo(d32, hn::Load(db, signs[i] + v * lanes));
      words = hn::Or(words, hn::ShiftLeftSame(bytes, i * static_cast<int>(kSignsOfGroup)));
    }
    hn::StoreU(words, d32, s.signs + step * width + v * lanes);
  }
}

template <typename T>
constexpr T kTiny = sizeof(T) == 4 ? T(kTinyFloat) : T(kTinyDouble);
template <typename T>
constexpr T kStretch = sizeof(T) == 4 ? T(kStretchFloat) : T(kStretchDouble);

template <typename T, typename Code>
HWY_INLINE void decode_fused_step(const PanelCodes<T>& s, std::int64_t step) {
  const Tag<T> d;
  const Tag<Word<T>> du;
  [[maybe_unused]] const hn::Rebind<Exponent<T>, Tag<T>> de;
  const hn::Rebind<std::uint32_t, Tag<T>> dw;
  // Copies: what the loop stores might be part of `s` for all the compiler knows.
  const CodeLayout layout = s.layout;
  const std::int64_t terms = s.terms;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const auto* codes = reinterpret_cast<const Code*>(s.codes) + step * terms * width;
  T* values = s.values + step * terms * width;
  Exponent<T>* exponents = s.exponents + step * terms * width;
  Decoder<T> decoder(layout, kStretch<T>, kTiny<T>, sizeof(T) == 4 ? kFloatBiasB : kDoubleBiasB);
  Vector<Word<T>> signs[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) signs[v] = hn::Zero(du);
  for (std::int64_t t = 0; t < terms; ++t) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = t * width + v * lanes;
      decoder.load(codes + at);
      hn::Store(decoder.values(), d, values + at);
      signs[v] = hn::Or(hn::ShiftRight<1>(signs[v]), decoder.signs());
      if constexpr (sizeof(Code) != 1 || sizeof(T) != 4)
        hn::StoreU(hn::TruncateTo(de, decoder.exponents()), de, exponents + at);
    }
    if constexpr (sizeof(Code) == 1 && sizeof(T) == 4)
      decode_exponents(layout, codes + t * width, exponents + t * width);
  }
  // The last term's sign is in the highest bit.
  const int unused = static_cast<int>(8 * sizeof(T)) - static_cast<int>(terms);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v)
    hn::StoreU(low_words(hn::ShiftRightSame(signs[v], unused)), dw,
               s.signs + step * width + v * lanes);
}

/// Whether words of codes are binary32 numbers, with bits below the code to drop.
bool has_float_fields(const CodeLayout& s) {
  return s.bias == kExponentBias<float> && s.sign_bit + s.dropped_bits == 31 &&
         s.mantissa_bits + s.dropped_bits == kMantissaBits<float>;
}

/// Plain values of such codes.
HWY_INLINE void decode_float_panel(const PanelCodes<float>& s) {
  const Tag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t count = s.steps * s.terms * lanes * kVectors;
  const auto* codes = reinterpret_cast<const std::uint32_t*>(s.codes);
  const auto kept = hn::Set(d, ~((1u << s.layout.dropped_bits) - 1u));
  float* values = s.values;
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto value = hn::And(hn::LoadU(d, codes + i), kept);
    hn::Store(hn::BitCast(Tag<float>(), value), Tag<float>(), values + i);
  }
}

template <typename T, typename Code>
void decode_panel(const PanelCodes<T>& s) {
  if constexpr (sizeof(T) == 4 && sizeof(Code) == 1) {
    if (s.fused && has_half_fields(s.layout)) {
      for (std::int64_t step = 0; step < s.steps; ++step)
        s.layout.mantissa_bits == 3 ? decode_half_step<3>(s, step) : decode_half_step<2>(s, step);
      return;
    }
  }
  if (s.fused) {
    for (std::int64_t step = 0; step < s.steps; ++step) decode_fused_step<T, Code>(s, step);
    return;
  }
  if constexpr (sizeof(T) == 4 && sizeof(Code) == 4) {
    if (has_float_fields(s.layout)) return decode_float_panel(s);
  }
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* codes = reinterpret_cast<const Code*>(s.codes);
  Decoder<T> decoder(s.layout, T{1}, T{0}, 0);
  for (std::int64_t i = 0; i < s.steps * s.terms * lanes * kVectors; i += lanes) {
    decoder.load(codes + i);
    hn::Store(decoder.values(), d, s.values + i);
  }
}

template <typename Code>
std::uint64_t sign_bits(const Code* codes, std::int64_t count, int bit) {
  std::uint64_t signs = 0;
  for (std::int64_t t = 0; t < count; ++t) signs |= std::uint64_t{codes[t] >> bit & 1u} << t;
  return signs;
}
/// Multiplication gathers the lowest bits of eight bytes into the highest byte.
HWY_INLINE std::uint64_t sign_bits(const std::uint8_t* codes, std::int64_t count, int bit) {
  std::uint64_t signs = 0;
  for (std::int64_t t = 0; t < count; t += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, codes + t, 8);
    eight = eight >> bit & 0x0101010101010101u;
    signs |= ((eight * 0x0102040810204080u) >> 56) << t;
  }
  return signs & ((std::uint64_t{1} << count) - 1);
}

/// Rows whose steps are parts of a vector, without exponents and signs: a vector of codes is that
/// of several steps.
template <typename T, typename Code>
void decode_short_steps(const RowCodes<T>& s, Decoder<T>& decoder) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t stride = s.rows * s.terms;  // from one step to the next
  const std::int64_t together = lanes / s.terms;
  HWY_ALIGN T values[hn::MaxLanes(d)];
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const auto* codes = reinterpret_cast<const Code*>(s.codes) + r * s.row_stride;
    for (std::int64_t step = 0; step < s.steps; step += together) {
      decoder.load(codes + step * s.terms);
      hn::Store(decoder.values(), d, values);
      T* to = s.values + step * stride + r * s.terms;
      const std::int64_t steps = std::min(together, s.steps - step);
      for (std::int64_t i = 0; i < steps; ++i)
        std::memcpy(to + i * stride, values + i * s.terms,
                    static_cast<std::size_t>(s.terms) * sizeof(T));
    }
  }
}

/// Plain values of such 8-bit codes by way of FP16: the same fields.
HWY_INLINE void decode_half_rows(const RowCodes<float>& s) {
  const Tag<float> d;
  const Tag<std::int16_t> d16;
  const hn::Rebind<std::int8_t, Tag<std::int16_t>> dc;
  const hn::Rebind<hwy::float16_t, Tag<float>> dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const int mantissa_bits = s.layout.mantissa_bits;
  const auto fields = hn::Set(d16, static_cast<std::int16_t>(mantissa_bits == 3 ? 0xbf80 : 0xff00));
  const auto scale = hn::Set(d, std::ldexp(1.0F, 15 - s.layout.bias));
  HWY_ALIGN std::int16_t halves[hn::MaxLanes(d16)];
  float* values = s.values;
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t r = 0; r < s.rows; ++r, values += s.terms) {
      const unsigned char* codes = s.codes + r * s.row_stride + step * s.terms;
      for (std::int64_t t = 0; t < s.terms; t += 2 * lanes) {
        const auto* from = reinterpret_cast<const std::int8_t*>(codes + t);
        const auto wide = hn::PromoteTo(d16, hn::LoadU(dc, from));
        hn::Store(hn::And(hn::ShiftLeftSame(wide, 10 - mantissa_bits), fields), d16, halves);
        FP8LAB_UNROLL
        for (int i = 0; i < 2; ++i) {
          const auto* half = reinterpret_cast<const hwy::float16_t*>(halves) + i * lanes;
          const auto value = hn::PromoteTo(d, hn::Load(dh, half));
          hn::StoreU(hn::Mul(value, scale), d, values + t + i * lanes);
        }
      }
    }
}

template <typename T, typename Code>
void decode_rows(const RowCodes<T>& s) {
  if constexpr (sizeof(T) == 4 && sizeof(Code) == 1) {
    constexpr std::int64_t kTogether = 32;  // codes, or a divisor of it
    const bool whole = s.terms % kTogether == 0;
    if (!s.fused && whole && has_half_fields(s.layout)) return decode_half_rows(s);
  }
  const Tag<T> d;
  const hn::Rebind<std::uint32_t, Tag<T>> d32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Decoder<T> decoder(s.layout, T{1}, s.fused ? kTiny<T> : T{0},
                     sizeof(T) == 4 ? kFloatBiasA : kDoubleBiasA);
  if (!s.fused && lanes % s.terms == 0 && lanes > s.terms)
    return decode_short_steps<T, Code>(s, decoder);
  T* values = s.values;
  std::uint32_t* exponents = s.exponents;
  for (std::int64_t step = 0; step < s.steps; ++step) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const auto* codes =
          reinterpret_cast<const Code*>(s.codes) + r * s.row_stride + step * s.terms;
      // What is written past the row's terms is overwritten by the next row.
      for (std::int64_t t = 0; t < s.terms; t += lanes) {
        decoder.load(codes + t);
        hn::StoreU(decoder.values(), d, values + t);
        if (!s.fused) continue;
        auto e = decoder.exponents();
        e = hn::Or(e, hn::ShiftLeft<16>(e));
        if constexpr (sizeof(T) == 4)
          hn::StoreU(hn::Or(e, hn::ShiftLeft<8>(e)), d32, exponents + t);
        else
          hn::StoreU(hn::TruncateTo(d32, e), d32, exponents + t);
      }
      values += s.terms;
      if (!s.fused) continue;
      exponents += s.terms;
      s.signs[step * s.rows + r] = static_cast<std::uint32_t>(
          sign_bits(codes, s.terms, s.layout.sign_bit + s.layout.dropped_bits));
    }
  }
}

template <typename T, typename Code>
DecodeKernels<T> decode_kernels() {
  return {decode_panel<T, Code>, decode_rows<T, Code>};
}

template <typename T>
const DecodeKernelsByWidth<T>* kernels_by_width() {
  static const DecodeKernelsByWidth<T> kTable{decode_kernels<T, std::uint8_t>(),
                                              decode_kernels<T, std::uint16_t>(),
                                              decode_kernels<T, std::uint32_t>()};
  return &kTable;
}
const DecodeKernelsByWidth<float>* float_decode_kernels() { return kernels_by_width<float>(); }
const DecodeKernelsByWidth<double>* double_decode_kernels() { return kernels_by_width<double>(); }

#else
const DecodeKernelsByWidth<float>* float_decode_kernels() { return nullptr; }
const DecodeKernelsByWidth<double>* double_decode_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(DecodeKernelsByWidth<float>, float_decode_kernels)
FP8LAB_TABLE_OF_TARGET(DecodeKernelsByWidth<double>, double_decode_kernels)

}  // namespace fp8lab::gemm_detail
#endif
