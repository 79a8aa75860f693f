#include <algorithm>
#include <bit>
#include <cstring>

#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/dot_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/reduce-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

// A step's codes of one column; targets with shorter vectors take them in chunks.
using Codes = hn::CappedTag<std::uint8_t, kDotTerms>;
using SignedCodes = hn::RebindToSigned<Codes>;
using Halves = hn::Repartition<hwy::float16_t, Codes>;
constexpr int kChunk = static_cast<int>(hn::MaxLanes(Codes()));
constexpr int kChunks = static_cast<int>(kDotTerms) / kChunk;
// Vectors of values that a chunk decodes to.
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<float>()));
constexpr int kValues = kChunk / kLanes;

/// Stores codes of a chunk as FP16 numbers with the same fields, subnormals among them: terms of
/// even place first. They are 2^(bias - 15) times what they stand for.
template <int kExponentBits>
HWY_INLINE void store_halves(hn::Vec<Codes> codes, hwy::float16_t* to) {
  constexpr int kShift = 5 - kExponentBits;
  const hn::Repartition<std::int16_t, Codes> d;
  const Halves dh;
  const auto words = hn::BitCast(d, codes);
  const auto fields = hn::Set(d, static_cast<std::int16_t>(kShift == 0 ? 0xff00 : 0xbf80));
  auto even = hn::ShiftLeft<8>(words);
  auto odd = words;
  if constexpr (kShift != 0) {
    even = hn::ShiftRight<kShift>(even);
    odd = hn::ShiftRight<kShift>(odd);
  }
  hn::Store(hn::BitCast(dh, hn::And(even, fields)), dh, to);
  hn::Store(hn::BitCast(dh, hn::And(odd, fields)), dh, to + kChunk / 2);
}

/// Biased exponents of codes; 0 for zeros.
template <int kExponentBits>
HWY_INLINE hn::Vec<Codes> exponents_of(hn::Vec<Codes> codes, std::uint8_t bias) {
  const Codes d;
  const hn::Repartition<std::uint16_t, Codes> d16;
  const auto shifted = hn::BitCast(d, hn::ShiftRight<7 - kExponentBits>(hn::BitCast(d16, codes)));
  const auto field =
      hn::And(shifted, hn::Set(d, static_cast<std::uint8_t>((1 << kExponentBits) - 1)));
  const auto biased = hn::Add(hn::Max(field, hn::Set(d, std::uint8_t{1})), hn::Set(d, bias));
  const auto magnitude = hn::And(codes, hn::Set(d, std::uint8_t{0x7f}));
  return hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d)), biased);
}

/// The largest byte of eight vectors, each.
HWY_INLINE void largest_bytes(const hn::Vec<Codes> (&columns)[kColumns],
                              hn::Vec<Words> (&to)[kParts]) {
  const Codes d;
  const Words d32;
  reduce_columns<Larger>(d, columns, to);
  FP8LAB_UNROLL
  for (auto& word : to) {
    auto bytes = hn::BitCast(d, word);
    bytes = hn::Max(bytes, hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(d32, bytes))));
    bytes = hn::Max(bytes, hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(d32, bytes))));
    word = hn::And(hn::BitCast(d32, bytes), hn::Set(d32, 0xffu));
  }
}

/// Of 32 bits: for CountTrue's 64, GCC 12 reads 8 bytes where it has spilled 4 of an AVX-512 mask.
HWY_INLINE std::uint64_t count_true(hn::Mask<SignedCodes> mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(SignedCodes(), mask, bytes);
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return static_cast<std::uint64_t>(std::popcount(bits));
}

/// A finished sum as the next step's c.
HWY_INLINE hn::Vec<Floats> next_c(hn::Vec<Floats> sum, hn::Vec<Floats> c, const StepRounding& r) {
  const Floats d;
  const Words du;
  if (!r.half_output)
    return hn::And(sum, hn::BitCast(d, hn::Set(du, ~((1u << (23 - r.output_fraction_bits)) - 1u))));
  const auto half = hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), sum));
  return hn::IfThenElse(hn::IsInf(c), c, half);
}

/// What a step's products wait for, [row][column].
template <int R>
struct Alignment {
  HWY_ALIGN float magic[R][kMaxWidth];
  HWY_ALIGN std::uint8_t negatives[R][kMaxWidth];
};

/// Codes of some steps, [steps][columns][kDotTerms], and their values (see store_halves).
struct Fetched {
  static constexpr std::int64_t kSteps = 4;
  HWY_ALIGN std::uint8_t codes[kSteps * kMaxWidth * kDotTerms];
  HWY_ALIGN hwy::float16_t values[kSteps * kMaxWidth * kDotTerms];
};

/// Copies codes once for a cache line's steps: rows of B that are a power of two apart displace
/// each other's lines between one step and the next.
template <int kExponentBits>
HWY_INLINE void fetch(const DotBlock& s, std::int64_t step, std::int64_t steps, Fetched& to) {
  const Codes d;
  const std::uint8_t* codes = s.codes + step * s.terms;
  for (std::int64_t j = 0; j < s.columns; ++j) {
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      std::uint8_t* largest = s.largest + j * kDotTerms + chunk * kChunk;
      auto most = hn::Load(d, largest);
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t at = (i * s.columns + j) * kDotTerms + chunk * kChunk;
        const auto b = hn::LoadU(d, codes + i * s.terms + chunk * kChunk);
        hn::Store(b, d, to.codes + at);
        store_halves<kExponentBits>(b, to.values + at);
        most = hn::Max(most, hn::And(b, hn::Set(d, std::uint8_t{0x7f})));
      }
      hn::Store(most, d, largest);
    }
    codes += s.code_stride;
  }
}

/// What c brings to the alignment: a subnormal FP16 number its format's smallest exponent, a zero
/// none.
HWY_INLINE hn::Vec<Words> field_of_c(hn::Vec<Words> field, const StepRounding& rounding) {
  const Words d;
  if (!rounding.half_output) return field;
  const auto smallest = hn::Set(d, static_cast<std::uint32_t>(rounding.c_exponent_floor) << 23);
  return hn::IfThenZeroElse(hn::Eq(field, hn::Zero(d)), hn::Max(field, smallest));
}

/// The largest exponents of the products of R rows with eight columns and of c, as magic
/// numbers, and how many products are negative.
template <int kExponentBits, int R>
HWY_INLINE void align_columns(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                              std::int64_t row, std::int64_t column, const std::uint8_t* codes,
                              Alignment<R>& to) {
  const Codes d8;
  const SignedCodes di8;
  const Words du;
  const Floats df;
  const std::int64_t at = (step * s.rows + row) * kDotTerms;
  const auto bias = static_cast<std::uint8_t>(kFloatBiasB - s.layout.bias);
  const std::uint8_t* next = s.next_codes + step * s.terms + column * s.next_stride;
  hn::Vec<Codes> exponents[R][kColumns];
  std::uint64_t negatives[R] = {};
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    __builtin_prefetch(next);
    next += s.next_stride;
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto b = hn::Load(d8, codes + (column + j) * kDotTerms + chunk * kChunk);
      const auto e = exponents_of<kExponentBits>(b, bias);
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        const std::int64_t i = at + r * kDotTerms + chunk * kChunk;
        const auto sum = hn::Add(e, hn::Load(d8, s.a.exponents + i));
        const auto differs = hn::Xor(hn::BitCast(di8, b), hn::Load(di8, s.a.signs + i));
        const auto count = count_true(hn::Gt(differs, hn::Load(di8, s.a.zeros + i)));
        exponents[r][j] = chunk == 0 ? sum : hn::Max(exponents[r][j], sum);
        negatives[r] += count << (8 * j);
      }
    }
  }
  const auto to_magic = hn::Set(
      du, (static_cast<std::uint32_t>(23 - rounding.alignment_fraction_bits) << 23) | (1u << 22));
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    std::memcpy(&to.negatives[r][column], &negatives[r], kColumns);
    hn::Vec<Words> largest[kParts];
    largest_bytes(exponents[r], largest);
    FP8LAB_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t j = column + p * kWords;
      const auto c = hn::BitCast(du, hn::Load(df, s.state + (row + r) * s.width + j));
      const auto floor = hn::Set(du, static_cast<std::uint32_t>(rounding.exponent_floor));
      const auto field =
          hn::Max(hn::ShiftLeft<23>(hn::Max(largest[p], floor)),
                  field_of_c(hn::And(c, hn::Set(du, kExponentMask<float>)), rounding));
      hn::Store(hn::BitCast(df, hn::Add(field, to_magic)), df, &to.magic[r][j]);
    }
  }
}

/// The sums of products' floors of R rows and eight columns, added to c.
template <int R>
HWY_INLINE void add_columns(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                            std::int64_t row, std::int64_t column, const hwy::float16_t* values,
                            const Alignment<R>& from) {
  const Tag<float> d;
  const Tag<std::uint32_t> du32;
  const hn::Rebind<hwy::float16_t, Tag<float>> dh;
  const Words du;
  const Floats df;
  const hn::RebindToSigned<Words> di;
  const std::int64_t at = (step * s.rows + row) * kDotTerms;
  hn::Vec<Words> sums[R][kColumns];
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    hn::Vec<Tag<std::uint32_t>> bits[R];
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const hwy::float16_t* b = values + (column + j) * kDotTerms + chunk * kChunk;
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto magic = hn::Set(d, from.magic[r][column + j]);
        const float* a = s.a.values + at + r * kDotTerms + chunk * kChunk;
        hn::Vec<Tag<std::uint32_t>> part[kValues];
        FP8LAB_UNROLL
        for (int v = 0; v < kValues; ++v)
          part[v] =
              hn::BitCast(du32, hn::MulAdd(hn::Load(d, a + v * kLanes),
                                           hn::PromoteTo(d, hn::Load(dh, b + v * kLanes)), magic));
        FP8LAB_UNROLL
        for (int n = kValues / 2; n > 0; n /= 2) {
          FP8LAB_UNROLL
          for (int v = 0; v < n; ++v) part[v] = hn::Add(part[v], part[v + n]);
        }
        bits[r] = chunk == 0 ? part[0] : hn::Add(bits[r], part[0]);
      }
    }
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      if constexpr (kLanes > kWords)
        sums[r][j] = hn::Add(hn::LowerHalf(du, bits[r]), hn::UpperHalf(du, bits[r]));
      else
        sums[r][j] = bits[r];
    }
  }

  // From the magic number's bits to those of 2^(F - e_max) and of its inverse.
  const auto of_units = hn::Set(du, ((254 + 23) << 23) + (1u << 22));
  const auto of_unit = hn::Set(du, (23u << 23) + (1u << 22));
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    hn::Vec<Words> total[kParts];
    reduce_columns<Sum>(du, sums[r], total);
    FP8LAB_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t j = column + p * kWords;
      float* state = s.state + (row + r) * s.width + j;
      const auto c = hn::Load(df, state);
      const auto magic = hn::BitCast(du, hn::Load(df, &from.magic[r][j]));
      const auto to_units = hn::BitCast(df, hn::Sub(of_units, magic));
      const auto unit = hn::BitCast(df, hn::Sub(magic, of_unit));
      const auto floors = hn::Sub(total[p], hn::ShiftLeft<hwy::CeilLog2(kDotTerms)>(magic));
      const auto negatives =
          hn::PromoteTo(di, hn::Load(hn::Rebind<std::uint8_t, Words>(), &from.negatives[r][j]));
      const auto whole = hn::Add(hn::Add(hn::BitCast(di, floors), negatives),
                                 hn::ConvertTo(di, hn::Mul(c, to_units)));
      hn::Store(next_c(hn::Mul(hn::ConvertTo(df, whole), unit), c, rounding), df, state);
    }
  }
}

/// One step of R rows with all columns. Columns wait for their largest exponents, so all have
/// their turn first.
template <int kExponentBits, int R>
HWY_INLINE void dot_rows(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                         std::int64_t row, const Fetched& fetched, std::int64_t i) {
  const std::int64_t at = i * s.columns * kDotTerms;
  Alignment<R> alignment;
  for (std::int64_t j = 0; j < s.columns; j += kColumns)
    align_columns<kExponentBits, R>(s, rounding, step, row, j, fetched.codes + at, alignment);
  for (std::int64_t j = 0; j < s.columns; j += kColumns)
    add_columns<R>(s, rounding, step, row, j, fetched.values + at, alignment);
}

template <int kExponentBits>
void dot_steps(const DotBlock& from, const StepRounding& rounding) {
  const DotBlock s = from;  // what is stored might be part of `from` for all the compiler knows
  Fetched fetched;
  for (std::int64_t first = 0; first < s.steps; first += Fetched::kSteps) {
    const std::int64_t steps = std::min(Fetched::kSteps, s.steps - first);
    fetch<kExponentBits>(s, first, steps, fetched);
    for (std::int64_t i = 0; i < steps; ++i) {
      std::int64_t row = 0;
      for (; row + 4 <= s.rows; row += 4)
        dot_rows<kExponentBits, 4>(s, rounding, first + i, row, fetched, i);
      for (; row + 2 <= s.rows; row += 2)
        dot_rows<kExponentBits, 2>(s, rounding, first + i, row, fetched, i);
      if (row < s.rows) dot_rows<kExponentBits, 1>(s, rounding, first + i, row, fetched, i);
    }
  }
}

void dot(const DotBlock& s, const StepRounding& rounding) {
  if (s.layout.exponent_bits == 4)
    dot_steps<4>(s, rounding);
  else
    dot_steps<5>(s, rounding);
}

/// One step of one row, all kDotTerms codes of it, of which `at` counts those before.
template <int kExponentBits>
HWY_INLINE void pack_step(const DotRowCodes& s, const std::uint8_t* codes, std::int64_t at) {
  const Codes d;
  const SignedCodes di;
  const Tag<float> df;
  const hn::Rebind<hwy::float16_t, Tag<float>> dh;
  const auto scale = hn::Set(df, s.scale);
  const auto bias = static_cast<std::uint8_t>(kFloatBiasA - s.bias);
  const auto sign = hn::Set(d, std::uint8_t{0x80});
  HWY_ALIGN hwy::float16_t halves[kChunk];
  FP8LAB_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk, at += kChunk) {
    const auto x = hn::LoadU(d, codes + chunk * kChunk);
    store_halves<kExponentBits>(x, halves);
    FP8LAB_UNROLL
    for (int v = 0; v < kValues; ++v)
      hn::Store(hn::Mul(hn::PromoteTo(df, hn::Load(dh, halves + v * kLanes)), scale), df,
                s.values + at + v * kLanes);
    hn::Store(exponents_of<kExponentBits>(x, bias), d, s.exponents + at);
    hn::Store(hn::BitCast(di, hn::AndNot(x, sign)), di, s.signs + at);
    const auto zero = hn::Eq(hn::AndNot(sign, x), hn::Zero(d));
    hn::Store(hn::BitCast(di, hn::IfThenElseZero(zero, hn::Set(d, std::uint8_t{127}))), di,
              s.zeros + at);
  }
}

void pack_rows(const DotRowCodes& from) {
  const DotRowCodes s = from;
  HWY_ALIGN std::uint8_t codes[kDotTerms] = {};  // what is beyond the step's terms stays zero
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const std::int64_t at = (step * s.rows + row) * kDotTerms;
      const unsigned char* in = s.codes + row * s.row_stride + step * s.terms;
      if (s.terms == kDotTerms)
        std::memcpy(codes, in, kDotTerms);
      else
        std::memcpy(codes, in, static_cast<std::size_t>(s.terms));
      s.exponent_bits == 4 ? pack_step<4>(s, codes, at) : pack_step<5>(s, codes, at);
    }
}

const DotKernels* dot_kernels() {
  static const DotKernels kTable{kChunk, dot, pack_rows};
  return &kTable;
}

#else
const DotKernels* dot_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(DotKernels, dot_kernels)

}  // namespace fp8lab::gemm_detail
#endif
