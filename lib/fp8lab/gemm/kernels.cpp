#include "fp8lab/gemm/kernels.hpp"

#include "fp8lab/accumulate/accumulate.hpp"

// AVX-512 of Ice Lake and later counts bits in one instruction.
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

#if defined(__clang__)
#define FP8LAB_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FP8LAB_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// A panel is four vectors wide, so that its exponents fill one vector. With 32
// registers four rows share each load of B; with 16 two do.
constexpr int kVectors = 4;
constexpr int kRows = HWY_TARGET == HWY_AVX2 ? 2 : 4;

template <typename T>
using Word = typename PackedTypes<T>::Word;
template <typename T>
using Exponent = typename PackedTypes<T>::Exponent;
template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vector = hn::Vec<Tag<T>>;

template <typename T>
constexpr int kMantissaBits = sizeof(T) == 4 ? 23 : 52;
template <typename T>
constexpr Word<T> kExponentMask = (Word<T>{1} << (8 * sizeof(T) - 1)) -
                                  (Word<T>{1} << kMantissaBits<T>);

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
  for (std::int64_t k = 0; k < terms; ++k) {
    const auto e = hn::Load(d, b + k * width);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r)
      m[r] = hn::Max(m[r], hn::Add(e, hn::BitCast(d, hn::Set(d32, a[r * terms + k]))));
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) hn::Store(m[r], d, largest + r * width);
}

/// acc += a . b over `terms` terms, R rows by one panel.
template <typename T, int R>
HWY_INLINE void multiply_add(std::int64_t terms, const T* a, const T* b,
                             Vector<T> (&acc)[R][kVectors]) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t k = 0; k < terms; ++k) {
    const T* row = b + k * lanes * kVectors;
    Vector<T> column[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = hn::Load(d, row + v * lanes);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto value = hn::Set(d, a[r * terms + k]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value, column[v], acc[r][v]);
    }
  }
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

/// Values of one vector of codes, zeros replaced and the rest stretched: the
/// significand and exponent fields moved to binary32's places; subnormals, which
/// have no hidden bit, by conversion.
HWY_INLINE Vector<float> decode_codes(const CodeLayout& s, Vector<std::uint32_t> codes, float zero,
                                      float stretch) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const Tag<std::int32_t> di;
  const auto magnitude = hn::And(codes, hn::Set(du, (1u << s.sign_bit) - 1u));
  const auto rebias = hn::Set(du, static_cast<std::uint32_t>(127 - s.bias) << 23);
  const auto normal =
      hn::BitCast(d, hn::Add(hn::ShiftLeftSame(magnitude, 23 - s.mantissa_bits), rebias));
  const auto unit =
      hn::BitCast(d, hn::Set(du, static_cast<std::uint32_t>(128 - s.bias - s.mantissa_bits) << 23));
  const auto subnormal = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), unit);
  const auto is_normal =
      hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, (1 << s.mantissa_bits) - 1));
  const auto value =
      hn::Mul(hn::IfThenElse(hn::RebindMask(d, is_normal), normal, subnormal), hn::Set(d, stretch));
  const auto is_zero = hn::RebindMask(d, hn::Eq(magnitude, hn::Zero(du)));
  const auto sign = hn::And(hn::ShiftLeftSame(codes, 31 - s.sign_bit), hn::Set(du, 1u << 31));
  const auto kept = hn::IfThenElse(is_zero, hn::Set(d, zero), value);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, kept), sign));
}

void decode_rows(const DecodeRows& s) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const hn::Rebind<std::uint8_t, Tag<std::uint32_t>> d8;
  const auto bias = hn::Set(du, static_cast<std::uint32_t>(kFloatBiasA - s.layout.bias));
  for (std::int64_t i = 0; i < s.count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto codes = hn::PromoteTo(du, hn::LoadU(d8, s.codes + i));
    hn::StoreU(decode_codes(s.layout, codes, kTinyFloat, 1.0F), d, s.values + i);
    const auto magnitude = hn::And(codes, hn::Set(du, (1u << s.layout.sign_bit) - 1u));
    const auto field =
        hn::Max(hn::ShiftRightSame(magnitude, s.layout.mantissa_bits), hn::Set(du, 1u));
    const auto one = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(du)), hn::Add(field, bias));
    const auto two = hn::Or(one, hn::ShiftLeft<8>(one));
    hn::StoreU(hn::Or(two, hn::ShiftLeft<16>(two)), du, s.exponents + i);
  }
}

/// The biased exponents of a panel's width of codes; 0 for zeros.
HWY_INLINE void decode_exponents(const CodeLayout& s, const std::uint8_t* codes,
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

void decode_step(const DecodeStep& s) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const hn::Rebind<std::uint8_t, Tag<std::uint32_t>> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  Vector<std::uint32_t> signs[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) signs[v] = hn::Zero(du);
  const auto one = hn::Set(du, 1u);
  const float zero = s.fused ? kTinyFloat : 0.0F;
  const float stretch = s.fused ? kStretchFloat : 1.0F;
  for (std::int64_t t = 0; t < s.terms; ++t) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = t * width + v * lanes;
      const auto codes = hn::PromoteTo(du, hn::LoadU(d8, s.codes + at));
      hn::Store(decode_codes(s.layout, codes, zero, stretch), d, s.values + at);
      const auto sign = hn::And(hn::ShiftRightSame(codes, s.layout.sign_bit), one);
      signs[v] = hn::Or(signs[v], hn::ShiftLeftSame(sign, static_cast<int>(t)));
    }
    if (s.fused) decode_exponents(s.layout, s.codes + t * width, s.exponents + t * width);
  }
  if (!s.fused) return;
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) hn::Store(signs[v], du, s.signs + v * lanes);
}

/// A 16 x 16 block: four perfect shuffles of its 256 bytes swap rows and columns.
HWY_INLINE void transpose_block(const std::uint8_t* from, std::int64_t stride, std::uint8_t* to,
                                std::int64_t width) {
  const hn::Full128<std::uint8_t> d;
  hn::Vec<decltype(d)> v[16];
  hn::Vec<decltype(d)> w[16];
  FP8LAB_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = hn::LoadU(d, from + i * stride);
  FP8LAB_UNROLL
  for (int round = 0; round < 4; ++round) {
    FP8LAB_UNROLL
    for (int i = 0; i < 8; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + 8]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 8]);
    }
    FP8LAB_UNROLL
    for (int i = 0; i < 16; ++i) v[i] = w[i];
  }
  FP8LAB_UNROLL
  for (int i = 0; i < 16; ++i) hn::StoreU(v[i], d, to + i * width);
}

void transpose_step(const TransposeStep& s) {
  const std::int64_t block_terms = s.k_stride == 1 ? s.terms / 16 * 16 : 0;
  for (std::int64_t j = 0; j < s.columns; j += 16) {
    const std::int64_t columns = s.columns - j < 16 ? s.columns - j : 16;
    const std::uint8_t* from = s.from + j * s.row_stride;
    std::int64_t t = 0;
    if (columns == 16)
      for (; t < block_terms; t += 16)
        transpose_block(from + t, s.row_stride, s.codes + t * s.width + j, s.width);
    for (; t < s.terms; ++t)
      for (std::int64_t i = 0; i < columns; ++i)
        s.codes[t * s.width + j + i] = from[i * s.row_stride + t * s.k_stride];
  }
}

bool has_special(const std::uint8_t* codes, std::int64_t count, std::uint8_t largest,
                 std::uint8_t nan) {
  const Tag<std::uint8_t> d;
  const auto magnitudes = hn::Set(d, std::uint8_t{0x7f});
  const auto limit = hn::Set(d, largest);
  const auto nans = hn::Set(d, nan);
  auto found = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto c = hn::LoadU(d, codes + i);
    if (nan != 0)
      found = hn::Or(found, hn::VecFromMask(d, hn::Eq(c, nans)));
    else
      found = hn::Or(found, hn::SaturatedSub(hn::And(c, magnitudes), limit));
  }
  return !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
}

const KernelTable* table() {
  static const KernelTable kTable{static_cast<std::int64_t>(hn::Lanes(Tag<float>())) * kVectors,
                                  static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors,
                                  fused<float>,
                                  fused<double>,
                                  exact_steps,
                                  round_exact,
                                  plain<float>,
                                  plain<double>,
                                  combine,
                                  transpose_step,
                                  decode_step,
                                  decode_rows,
                                  has_special};
  return &kTable;
}

#else
const KernelTable* table() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab::gemm_detail {

const KernelTable* kernel_table(Target target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::table();
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
#if HWY_TARGETS & HWY_AVX3_DL
      if (hwy::SupportedTargets() & HWY_AVX3_DL) return N_AVX3_DL::table();
#endif
      return N_AVX3::table();
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::table();
#endif
    default:
      return nullptr;
  }
}

}  // namespace fp8lab::gemm_detail
#endif
