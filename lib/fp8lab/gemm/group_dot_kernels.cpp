// Steps of scaled groups of E2M1's products with lanes along k: docs/lab/gemm.md, "Few rows".

#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/group_dot_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/group_steps-inl.hpp"
#include "fp8lab/gemm/reduce-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using SignedWords = hn::RebindToSigned<Words>;
using IntVector = hn::Vec<SignedWords>;
using Shorts = hn::CappedTag<std::int16_t, kGroupTerms>;
using ShortBytes = hn::Rebind<std::int8_t, Shorts>;
using PairSums = hn::RepartitionToWide<Shorts>;
using Bytes = hn::CappedTag<std::uint8_t, 32>;

constexpr int kTerms = static_cast<int>(kGroupDotTerms);
constexpr int kGroups = kTerms / static_cast<int>(kGroupTerms);
/// What the sums of products of twice the values are too large by.
constexpr double kOfTwice = 0.25;

/// A step of some columns: twice the values, and which are not zero.
struct Columns {
  HWY_ALIGN std::int16_t values[kColumns][kTerms];
  HWY_ALIGN std::uint32_t nonzero[kGroups][kColumns];
};

HWY_INLINE void decode(const GroupDotBlock& s, std::int64_t step, std::int64_t column,
                       Columns& to) {
  alignas(16) static constexpr std::int8_t kTwice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                         0, -1, -2, -3, -4, -6, -8, -12};
  const Bytes d;
  const hn::RebindToSigned<Bytes> ds;
  constexpr int kBytes = static_cast<int>(hn::MaxLanes(Bytes()));
  const auto table = hn::BitCast(d, hn::LoadDup128(ds, kTwice));
  for (int j = 0; j < kColumns; ++j) {
    const unsigned char* codes = s.codes + (column + j) * s.code_stride + step * s.terms;
    fetch_soon(s.next_codes + (column + j) * s.next_stride + step * s.terms, s.terms);
    HWY_ALIGN std::uint8_t twice[kTerms];
    std::uint16_t nonzero[kGroups + 3];  // StoreMaskBits may write eight bytes
    FP8LAB_UNROLL
    for (int i = 0; i < kTerms; i += kBytes) {
      const auto code = hn::And(hn::LoadU(d, codes + i), hn::Set(d, std::uint8_t{15}));
      hn::Store(hn::TableLookupBytes(table, code), d, twice + i);
      const auto magnitude = hn::And(code, hn::Set(d, std::uint8_t{7}));
      hn::StoreMaskBits(d, hn::Ne(magnitude, hn::Zero(d)),
                        reinterpret_cast<std::uint8_t*>(nonzero) + i / 8);
    }
    constexpr int kShorts = static_cast<int>(hn::MaxLanes(Shorts()));
    FP8LAB_UNROLL
    for (int i = 0; i < kTerms; i += kShorts) {
      const auto narrow = hn::LoadU(ShortBytes(), reinterpret_cast<const std::int8_t*>(twice) + i);
      hn::Store(hn::PromoteTo(Shorts(), narrow), Shorts(), to.values[j] + i);
    }
    FP8LAB_UNROLL
    for (int g = 0; g < kGroups; ++g) to.nonzero[g][j] = nonzero[g];
  }
}

/// Four times the sums of one group's products.
HWY_INLINE void sum_group(const std::int16_t* a, const Columns& columns, int group,
                          hn::Vec<Words> (&to)[kParts]) {
  const PairSums d;
  constexpr int kShorts = static_cast<int>(hn::MaxLanes(Shorts()));
  hn::Vec<PairSums> sums[kColumns];
  FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    auto sum = hn::Zero(d);
    auto rest = hn::Zero(d);  // targets choose which products are in which
    FP8LAB_UNROLL
    for (int i = 0; i < static_cast<int>(kGroupTerms); i += kShorts) {
      const int at = group * static_cast<int>(kGroupTerms) + i;
      sum = hn::ReorderWidenMulAccumulate(d, hn::Load(Shorts(), a + at),
                                          hn::Load(Shorts(), columns.values[j] + at), sum, rest);
    }
    sums[j] = hn::Add(sum, rest);
  }
  reduce_columns<Sum>(d, sums, to);
}

/// One step of one row with the columns from `column` on.
HWY_INLINE void add_step(const GroupDotBlock& s, std::int64_t step, std::int64_t row,
                         std::int64_t column, const Columns& columns) {
  const Floats df;
  const SignedWords d;
  const Words du;
  const std::int16_t* a = s.a + (step * s.rows + row) * kTerms;
  float* state = s.state + row * s.width + column;
  hn::Vec<Words> sums[kGroups][kParts];
  FP8LAB_UNROLL
  for (int g = 0; g < kGroups; ++g) sum_group(a, columns, g, sums[g]);
  const std::int64_t at_a = step * kGroups * s.scale_a.stride + row;
  const std::int64_t at_b = step * kGroups * s.scale_b.stride + column;
  FP8LAB_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const auto c = hn::Load(df, state + p * kWords);
    auto largest = exponent_of_c(df, c, s.rounding);
    FP8LAB_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const auto of_a = hn::Set(d, s.scale_a.exponent[at_a + g * s.scale_a.stride]);
      const auto of_b = hn::LoadU(d, s.scale_b.exponent + at_b + g * s.scale_b.stride + p * kWords);
      const auto both = hn::And(hn::Set(du, s.scale_a.nonzero[at_a + g * s.scale_a.stride]),
                                hn::Load(du, columns.nonzero[g] + p * kWords));
      largest = with_group(d, largest, hn::Add(of_a, of_b), both);
    }
    GroupSums<Floats> total(largest, s.rounding.alignment_fraction_bits, c);
    FP8LAB_UNROLL
    for (int g = 0; g < kGroups; ++g)
      total.add(hn::BitCast(d, sums[g][p]), kOfTwice * s.scale_a.scale[at_a + g * s.scale_a.stride],
                s.scale_b.scale + at_b + g * s.scale_b.stride + p * kWords);
    hn::Store(total.result(s.rounding.output_fraction_bits), df, state + p * kWords);
  }
}

void scaled_group_dots(const GroupDotBlock& from) {
  const GroupDotBlock s = from;  // what is stored might be part of `from` for the compiler
  Columns columns;
  for (std::int64_t column = 0; column < s.width; column += kColumns)
    for (std::int64_t step = 0; step < s.steps; ++step) {
      decode(s, step, column, columns);
      for (std::int64_t row = 0; row < s.rows; ++row) add_step(s, step, row, column, columns);
    }
}

const GroupDotKernels* group_dot_kernels() {
  static const GroupDotKernels kTable{scaled_group_dots};
  return &kTable;
}

#else
const GroupDotKernels* group_dot_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(GroupDotKernels, group_dot_kernels)

}  // namespace fp8lab::gemm_detail
#endif
