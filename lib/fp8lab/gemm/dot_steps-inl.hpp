// Steps of few rows with lanes along k: docs/lab/gemm.md, "Few rows". Included once for each
// target.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/reduce-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_DOT_STEPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_DOT_STEPS_INL
#undef FP8LAB_GEMM_DOT_STEPS_INL
#else
#define FP8LAB_GEMM_DOT_STEPS_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

// A step's codes of one column; targets with shorter vectors take them in chunks.
using Codes = hn::CappedTag<std::uint8_t, kDotTerms>;
using SignedCodes = hn::RebindToSigned<Codes>;
constexpr int kChunk = static_cast<int>(hn::MaxLanes(Codes()));
constexpr int kChunks = static_cast<int>(kDotTerms) / kChunk;
// Vectors of values that a chunk decodes to. Longer ones need an operation more for each sum, and
// processors convert half as many of them from FP16 at once.
using Values = hn::CappedTag<float, kColumns>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Values()));
constexpr int kValues = kChunk / kLanes;

// Two steps' codes of a column fill a vector, and one instruction looks up their exponents.
#undef FP8LAB_HAS_CODE_TABLES
#define FP8LAB_HAS_CODE_TABLES (HWY_TARGET == HWY_AVX3_DL)

/// Stores codes as FP16 numbers with the same fields, subnormals among them: terms of even place
/// first. They are 2^(bias - 15) times what they stand for.
template <int kExponentBits, class D>
HWY_INLINE void store_halves(D /*d*/, hn::Vec<D> codes, hwy::float16_t* to) {
  constexpr int kShift = 5 - kExponentBits;
  const hn::Repartition<std::int16_t, D> d;
  const hn::Repartition<hwy::float16_t, D> dh;
  const auto words = hn::BitCast(d, codes);
  const auto fields = hn::Set(d, static_cast<std::int16_t>(kShift == 0 ? 0xff00 : 0xbf80));
  auto even = hn::ShiftLeft<8>(words);
  auto odd = words;
  if constexpr (kShift != 0) {
    even = hn::ShiftRight<kShift>(even);
    odd = hn::ShiftRight<kShift>(odd);
  }
  hn::Store(hn::BitCast(dh, hn::And(even, fields)), dh, to);
  hn::Store(hn::BitCast(dh, hn::And(odd, fields)), dh, to + hn::Lanes(dh));
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

/// The largest byte of each word.
template <class D>
HWY_INLINE hn::Vec<D> largest_byte(D d32, hn::Vec<D> words) {
  const hn::Repartition<std::uint8_t, D> d;
  const auto pairs = hn::Max(hn::BitCast(d, words), hn::BitCast(d, hn::ShiftRight<16>(words)));
  const auto shifted = hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(d32, pairs)));
  return hn::And(hn::BitCast(d32, hn::Max(pairs, shifted)), hn::Set(d32, 0xffu));
}

/// The largest byte of eight vectors, each.
HWY_INLINE void largest_bytes(const hn::Vec<Codes> (&columns)[kColumns],
                              hn::Vec<Words> (&to)[kParts]) {
  const Codes d;
  reduce_columns<Larger>(d, columns, to);
  FP8LAB_UNROLL
  for (auto& word : to) word = largest_byte(Words(), word);
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

/// Codes of some steps, [steps][columns][kDotTerms], and their values (see store_halves). Pairs of
/// steps lie together, [pairs][columns][2 * kDotTerms].
struct Fetched {
  static constexpr std::int64_t kSteps = 4;
  HWY_ALIGN std::uint8_t codes[kSteps * kMaxWidth * kDotTerms];
  HWY_ALIGN hwy::float16_t values[kSteps * kMaxWidth * kDotTerms];
};

/// Copies codes of steps [begin, end) from `step` on, once for a cache line's steps: rows of B that
/// are a power of two apart displace each other's lines between one step and the next.
template <int kExponentBits>
HWY_INLINE void fetch(const DotBlock& s, std::int64_t step, std::int64_t begin, std::int64_t end,
                      Fetched& to) {
  const Codes d;
  const std::uint8_t* codes = s.codes + step * s.terms;
  for (std::int64_t j = 0; j < s.columns; ++j) {
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      std::uint8_t* largest = s.largest + j * kDotTerms + chunk * kChunk;
      auto most = hn::Load(d, largest);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t at = (i * s.columns + j) * kDotTerms + chunk * kChunk;
        const auto b = hn::LoadU(d, codes + i * s.terms + chunk * kChunk);
        hn::Store(b, d, to.codes + at);
        store_halves<kExponentBits>(d, b, to.values + at);
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

/// Fetches codes of eight columns, from `first` on each `stride`-th one's.
HWY_INLINE void fetch_columns(const DotBlock& s, std::int64_t step, std::int64_t column, int first,
                              int stride) {
  const std::uint8_t* next = s.next_codes + step * s.terms + column * s.next_stride;
  for (int j = first; j < kColumns; j += stride) fetch_soon(next + j * s.next_stride, 1);
}

/// The exponent fields of the largest alignment of eight columns' products and their c, as magic
/// numbers.
HWY_INLINE hn::Vec<Floats> magic_numbers(hn::Vec<Words> products, const float* c,
                                         const StepRounding& rounding) {
  const Words du;
  const Floats df;
  const auto to_magic = hn::Set(
      du, (static_cast<std::uint32_t>(23 - rounding.alignment_fraction_bits) << 23) | (1u << 22));
  const auto bits = hn::BitCast(du, hn::Load(df, c));
  const auto of_c = field_of_c(hn::And(bits, hn::Set(du, kExponentMask<float>)), rounding);
  return hn::BitCast(df, hn::Add(hn::Max(products, of_c), to_magic));
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
  hn::Vec<Codes> exponents[R][kColumns];
  std::uint64_t negatives[R] = {};
  if (row == 0) fetch_columns(s, step, column, 0, 1);
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
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
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    std::memcpy(&to.negatives[r][column], &negatives[r], kColumns);
    hn::Vec<Words> largest[kParts];
    largest_bytes(exponents[r], largest);
    FP8LAB_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t j = column + p * kWords;
      const auto floor = hn::Set(du, static_cast<std::uint32_t>(rounding.exponent_floor));
      const auto products = hn::ShiftLeft<23>(hn::Max(largest[p], floor));
      hn::Store(magic_numbers(products, s.state + (row + r) * s.width + j, rounding), df,
                &to.magic[r][j]);
    }
  }
}

/// Of R rows and eight columns, in parts: the bits of magic numbers with products' floors added.
template <int R>
using Sums = hn::Vec<Words>[R][kColumns];

/// `values` are those of the step's first column, where those of kSteps steps lie together.
template <int kSteps, int R>
HWY_INLINE void add_products(const DotBlock& s, std::int64_t step, std::int64_t row,
                             std::int64_t column, const hwy::float16_t* values,
                             const Alignment<R>& from, Sums<R>& sums) {
  constexpr int kEven = kValues / 2;  // vectors of terms of even place
  const Values d;
  const hn::Rebind<hwy::float16_t, Values> dh;
  const Words du;
  const std::int64_t at = (step * s.rows + row) * kDotTerms;
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    hn::Vec<Values> acc[R];
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) acc[r] = hn::Set(d, from.magic[r][column + j]);
    FP8LAB_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const hwy::float16_t* from_chunk =
          values + (column + j) * kSteps * kDotTerms + chunk * kChunk;
      hn::Vec<Values> b[kValues];
      FP8LAB_UNROLL
      for (int v = 0; v < kValues; ++v)
        b[v] = hn::PromoteTo(
            d, hn::Load(dh, from_chunk + v / kEven * kSteps * kChunk / 2 + v % kEven * kLanes));
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        const float* a = s.a.values + at + r * kDotTerms + chunk * kChunk;
        FP8LAB_UNROLL
        for (int v = 0; v < kValues; ++v)
          acc[r] = hn::MulAdd(hn::Load(d, a + v * kLanes), b[v], acc[r]);
      }
    }
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) sums[r][j] = hn::BitCast(du, acc[r]);
  }
}

/// Adds such sums to c.
template <int R>
HWY_INLINE void add_to_c(const DotBlock& s, const StepRounding& rounding, std::int64_t row,
                         std::int64_t column, const Alignment<R>& from, const Sums<R>& sums) {
  const Words du;
  const Floats df;
  const hn::RebindToSigned<Words> di;
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
      const auto floors = hn::Sub(total[p], hn::ShiftLeft<hwy::CeilLog2(kLanes)>(magic));
      const auto negatives =
          hn::PromoteTo(di, hn::Load(hn::Rebind<std::uint8_t, Words>(), &from.negatives[r][j]));
      const auto whole = hn::Add(hn::Add(hn::BitCast(di, floors), negatives),
                                 hn::ConvertTo(di, hn::Mul(c, to_units)));
      hn::Store(next_c(hn::Mul(hn::ConvertTo(df, whole), unit), c, rounding), df, state);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
