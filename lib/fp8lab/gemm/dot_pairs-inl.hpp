// Steps of few rows with lanes along k, two at once, whose codes of a column fill a vector:
// docs/lab/gemm.md, "Few rows". Included once for each target.

#include <cstdint>

#include "fp8lab/gemm/dot_steps-inl.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_DOT_PAIRS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_DOT_PAIRS_INL
#undef FP8LAB_GEMM_DOT_PAIRS_INL
#else
#define FP8LAB_GEMM_DOT_PAIRS_INL
#endif

#if FP8LAB_HAS_CODE_TABLES
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CODE_TABLES
#endif  // once for each target
