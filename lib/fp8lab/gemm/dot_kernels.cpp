#include <algorithm>
#include <bit>
#include <cstdint>
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

// Steps of few rows with lanes along k: docs/lab/gemm.md, "Few rows".

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

#if FP8LAB_HAS_CODE_TABLES
// Steps of few rows with lanes along k, two at once, whose codes of a column fill a vector:
// docs/lab/gemm.md, "Few rows".

using TwoSteps = hn::CappedTag<std::uint8_t, 2 * kDotTerms>;

/// Biased exponents of all codes without sign; 0 for zeros.
template <int kExponentBits>
class ExponentTable {
 public:
  explicit ExponentTable(std::uint8_t bias) {
    const Codes d;
    for (std::int64_t i = 0; i < kCodes; i += kChunk)
      hn::Store(exponents_of<kExponentBits>(hn::Iota(d, static_cast<std::uint8_t>(i)), bias), d,
                table_ + i);
  }
  [[nodiscard]] HWY_INLINE hn::Vec<TwoSteps> of(hn::Vec<TwoSteps> codes) const {
    const TwoSteps d;
    const auto lower = hn::Load(d, table_);
    const auto upper = hn::Load(d, table_ + kCodes / 2);
    // Signs are bits that it does not look at.
    return hn::Vec<TwoSteps>{_mm512_permutex2var_epi8(lower.raw, codes.raw, upper.raw)};
  }

 private:
  static constexpr std::int64_t kCodes = 128;
  HWY_ALIGN std::uint8_t table_[kCodes];
};

/// A step's bytes and those of the next step, `distance` apart.
HWY_INLINE hn::Vec<TwoSteps> load_two(const std::uint8_t* from, std::int64_t distance) {
  const Codes half;
  return hn::Combine(TwoSteps(), hn::LoadU(half, from + distance), hn::LoadU(half, from));
}

/// As `fetch`, of pairs of steps.
template <int kExponentBits>
HWY_INLINE void fetch_pairs(const DotBlock& s, std::int64_t step, std::int64_t pairs, Fetched& to) {
  const TwoSteps d;
  const Codes half;
  const std::uint8_t* codes = s.codes + step * s.terms;
  const auto magnitude = hn::Set(d, std::uint8_t{0x7f});
  for (std::int64_t j = 0; j < s.columns; ++j) {
    auto most = hn::Zero(d);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t at = (i * s.columns + j) * 2 * kDotTerms;
      const std::uint8_t* from = codes + 2 * i * s.terms;
      const auto b = s.terms == kDotTerms ? hn::LoadU(d, from) : load_two(from, s.terms);
      hn::Store(b, d, to.codes + at);
      store_halves<kExponentBits>(d, b, to.values + at);
      most = hn::Max(most, hn::And(b, magnitude));
    }
    std::uint8_t* largest = s.largest + j * kDotTerms;
    const auto both = hn::Max(hn::LowerHalf(half, most), hn::UpperHalf(half, most));
    hn::Store(hn::Max(both, hn::Load(half, largest)), half, largest);
    codes += s.code_stride;
  }
}

/// What of two steps' alignments does not wait for c: exponent fields of the largest products,
/// [step][row][column], and a bit for each product that is negative.
template <int R>
struct PairOfSteps {
  HWY_ALIGN std::uint32_t fields[2][R][kMaxWidth];
  HWY_ALIGN std::uint64_t negatives[R][kMaxWidth];
};

/// The largest byte of each half of eight columns' vectors: words of the first step's, then those
/// of the second's.
HWY_INLINE Vector<std::uint32_t> largest_of_two(const hn::Vec<TwoSteps> (&columns)[kColumns]) {
  const TwoSteps d;
  hn::Vec<TwoSteps> fours[2];
  reduce_blocks<Larger>(d, columns, fours);
  const hn::Vec<TwoSteps> even{_mm512_shuffle_i64x2(fours[0].raw, fours[1].raw, 0x88)};
  const hn::Vec<TwoSteps> odd{_mm512_shuffle_i64x2(fours[0].raw, fours[1].raw, 0xdd)};
  const auto blocks = hn::Max(even, odd).raw;
  const Vector<std::uint32_t> in_order{_mm512_shuffle_i64x2(blocks, blocks, 0xd8)};
  return largest_byte(Tag<std::uint32_t>(), in_order);
}

/// As `align_columns`, of a pair of steps, without c.
template <int kExponentBits, int R>
HWY_INLINE void align_pair(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                           std::int64_t row, std::int64_t column, const std::uint8_t* codes,
                           const ExponentTable<kExponentBits>& table, PairOfSteps<R>& to) {
  const TwoSteps d;
  const hn::RebindToSigned<TwoSteps> di;
  const Tag<std::uint32_t> d32;
  const Words du;
  const std::int64_t distance = s.rows * kDotTerms;
  const auto floor = hn::Set(d32, static_cast<std::uint32_t>(rounding.exponent_floor));
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    const std::int64_t at = (step * s.rows + row + r) * kDotTerms;
    const auto bytes = [&](const std::int8_t* from) {
      return hn::BitCast(di, load_two(reinterpret_cast<const std::uint8_t*>(from), distance));
    };
    const auto a_exponents = load_two(s.a.exponents + at, distance);
    const auto a_signs = bytes(s.a.signs + at);
    const auto a_zeros = bytes(s.a.zeros + at);
    hn::Vec<TwoSteps> exponents[kColumns];
    FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      const auto b = hn::Load(d, codes + (column + j) * 2 * kDotTerms);
      exponents[j] = hn::Add(table.of(b), a_exponents);
      const auto negative = hn::Gt(hn::Xor(hn::BitCast(di, b), a_signs), a_zeros);
      hn::StoreMaskBits(di, negative,
                        reinterpret_cast<std::uint8_t*>(&to.negatives[r][column + j]));
    }
    const auto fields = hn::ShiftLeft<23>(hn::Max(largest_of_two(exponents), floor));
    hn::Store(hn::LowerHalf(du, fields), du, &to.fields[0][r][column]);
    hn::Store(hn::UpperHalf(du, fields), du, &to.fields[1][r][column]);
  }
}

/// The alignment of the first step of a pair, 0, or of the second one, 1.
template <int kOfPair, int R>
HWY_INLINE void finish_alignment(const DotBlock& s, const StepRounding& rounding, std::int64_t row,
                                 const PairOfSteps<R>& from, Alignment<R>& to) {
  const Words du;
  const Tag<std::uint64_t> d64;
  const hn::Rebind<std::uint8_t, Tag<std::uint64_t>> d8;
  for (std::int64_t j = 0; j < s.columns; j += kColumns) {
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      hn::Store(magic_numbers(hn::Load(du, &from.fields[kOfPair][r][j]),
                              s.state + (row + r) * s.width + j, rounding),
                Floats(), &to.magic[r][j]);
      const auto bits = hn::Load(d64, &from.negatives[r][j]);
      const auto counts =
          hn::BitCast(d64, hn::PopulationCount(hn::BitCast(Tag<std::uint32_t>(), bits)));
      hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<32 * kOfPair>(counts)), d8, &to.negatives[r][j]);
    }
  }
}

/// One step of a pair, of which `values` has both steps'.
template <int kOfPair, int R>
HWY_INLINE void add_of_pair(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                            std::int64_t row, const hwy::float16_t* values,
                            const PairOfSteps<R>& pair) {
  Alignment<R> alignment;
  finish_alignment<kOfPair, R>(s, rounding, row, pair, alignment);
  for (std::int64_t j = 0; j < s.columns; j += kColumns) {
    // A line has both steps: half of the columns with either, since a core waits for few at once.
    if (row == 0) fetch_columns(s, step, j, kOfPair, 2);
    Sums<R> sums;
    add_products<2, R>(s, step + kOfPair, row, j, values + kOfPair * kChunk / 2, alignment, sums);
    add_to_c<R>(s, rounding, row, j, alignment, sums);
  }
}

/// A pair of steps of R rows with all columns, which wait for their largest exponents and for c.
template <int kExponentBits, int R>
HWY_INLINE void dot_rows_of_pair(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                                 std::int64_t row, const Fetched& fetched, std::int64_t i,
                                 const ExponentTable<kExponentBits>& table) {
  const std::int64_t at = i * s.columns * kDotTerms;
  PairOfSteps<R> pair;
  for (std::int64_t j = 0; j < s.columns; j += kColumns)
    align_pair<kExponentBits, R>(s, rounding, step, row, j, fetched.codes + at, table, pair);
  add_of_pair<0, R>(s, rounding, step, row, fetched.values + at, pair);
  add_of_pair<1, R>(s, rounding, step, row, fetched.values + at, pair);
}
#endif  // FP8LAB_HAS_CODE_TABLES

/// One step of R rows with all columns. Columns wait for their largest exponents, so all have
/// their turn first.
template <int kExponentBits, int R>
HWY_INLINE void dot_rows(const DotBlock& s, const StepRounding& rounding, std::int64_t step,
                         std::int64_t row, const Fetched& fetched, std::int64_t i) {
  const std::int64_t at = i * s.columns * kDotTerms;
  Alignment<R> alignment;
  for (std::int64_t j = 0; j < s.columns; j += kColumns)
    align_columns<kExponentBits, R>(s, rounding, step, row, j, fetched.codes + at, alignment);
  for (std::int64_t j = 0; j < s.columns; j += kColumns) {
    Sums<R> sums;
    add_products<1, R>(s, step, row, j, fetched.values + at, alignment, sums);
    add_to_c<R>(s, rounding, row, j, alignment, sums);
  }
}

/// The steps of fetched rows: `one` for each, of so many rows.
template <typename One>
HWY_INLINE void all_rows(std::int64_t rows, const One& one) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) one.template operator()<4>(row);
  for (; row + 2 <= rows; row += 2) one.template operator()<2>(row);
  if (row < rows) one.template operator()<1>(row);
}

template <int kExponentBits>
void dot_steps(const DotBlock& from, const StepRounding& rounding) {
  const DotBlock s = from;  // what is stored might be part of `from` for all the compiler knows
  Fetched fetched;
#if FP8LAB_HAS_CODE_TABLES
  const ExponentTable<kExponentBits> table(static_cast<std::uint8_t>(kFloatBiasB - s.layout.bias));
#endif
  for (std::int64_t first = 0; first < s.steps; first += Fetched::kSteps) {
    const std::int64_t steps = std::min(Fetched::kSteps, s.steps - first);
    std::int64_t i = 0;
#if FP8LAB_HAS_CODE_TABLES
    const std::int64_t paired = steps / 2 * 2;
    if (paired > 0) fetch_pairs<kExponentBits>(s, first, paired / 2, fetched);
    for (; i < paired; i += 2)
      all_rows(s.rows, [&]<int R>(std::int64_t row) HWY_ATTR {
        dot_rows_of_pair<kExponentBits, R>(s, rounding, first + i, row, fetched, i, table);
      });
#endif
    if (i < steps) fetch<kExponentBits>(s, first, i, steps, fetched);
    for (; i < steps; ++i)
      all_rows(s.rows, [&]<int R>(std::int64_t row) HWY_ATTR {
        dot_rows<kExponentBits, R>(s, rounding, first + i, row, fetched, i);
      });
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
  const Values df;
  const hn::Rebind<hwy::float16_t, Values> dh;
  const auto scale = hn::Set(df, s.scale);
  const auto bias = static_cast<std::uint8_t>(kFloatBiasA - s.bias);
  const auto sign = hn::Set(d, std::uint8_t{0x80});
  HWY_ALIGN hwy::float16_t halves[kChunk];
  FP8LAB_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk, at += kChunk) {
    const auto x = hn::LoadU(d, codes + chunk * kChunk);
    store_halves<kExponentBits>(d, x, halves);
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
