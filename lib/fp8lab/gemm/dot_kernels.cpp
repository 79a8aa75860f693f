#include <algorithm>
#include <cstring>

#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/dot_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/dot_pairs-inl.hpp"
#include "fp8lab/gemm/dot_steps-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

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
