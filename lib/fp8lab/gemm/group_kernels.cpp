#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/group_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/group_steps-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Floats = Tag<float>;
using Words = Tag<std::int32_t>;

constexpr int kVectorsAtOnce = 2;  // of columns, which share the broadcast values of A
constexpr int kPartialSums = 2;    // of a group: they are exact in any order

/// The exact sums of a group's products.
HWY_INLINE void sum_group(const float* a, const float* b, Vector<float> (&sum)[kVectorsAtOnce]) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> part[kPartialSums][kVectorsAtOnce];
  FP8LAB_UNROLL
  for (int i = 0; i < kPartialSums; ++i) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectorsAtOnce; ++v) part[i][v] = hn::Zero(d);
  }
  FP8LAB_UNROLL
  for (int k = 0; k < static_cast<int>(kGroupTerms); k += kPartialSums) {
    FP8LAB_UNROLL
    for (int i = 0; i < kPartialSums; ++i) {
      const auto value = hn::Set(d, a[k + i]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectorsAtOnce; ++v)
        part[i][v] =
            hn::MulAdd(value, hn::Load(d, b + ((k + i) * kVectors + v) * lanes), part[i][v]);
    }
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectorsAtOnce; ++v) sum[v] = hn::Add(part[0][v], part[1][v]);
}

/// The exponent of the alignment of one vector of columns.
HWY_INLINE Vector<std::int32_t> largest_exponent(const GroupBlock& s, std::int64_t group,
                                                 std::int64_t groups, std::int64_t row,
                                                 std::int64_t column, Vector<float> c) {
  const Words d;
  const Tag<std::uint32_t> du;
  auto largest = exponent_of_c(Floats(), c, s.rounding);
  for (std::int64_t g = group; g < group + groups; ++g) {
    const std::int64_t at_a = g * s.a.stride + row;
    const std::int64_t at_b = g * s.b.stride + column;
    const auto both = hn::And(hn::Set(du, s.a.nonzero[at_a]), hn::LoadU(du, s.b.nonzero + at_b));
    const auto exponent =
        hn::Add(hn::Set(d, s.a.exponent[at_a]), hn::LoadU(d, s.b.exponent + at_b));
    largest = with_group(d, largest, exponent, both);
  }
  return largest;
}

/// One step of one row with some vectors of columns from `column` on.
HWY_INLINE void scaled_columns(const GroupBlock& s, std::int64_t step, std::int64_t row,
                               std::int64_t column) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const std::int64_t terms = s.steps.terms;
  const std::int64_t groups = terms / kGroupTerms;
  const float* a = s.steps.a + (step * s.steps.rows + row) * terms;
  const float* b = s.steps.b + step * terms * width + column;
  float* state = s.steps.state + row * width + column;
  GroupSums<Floats> sums[kVectorsAtOnce];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectorsAtOnce; ++v) {
    const auto c = hn::Load(d, state + v * lanes);
    const auto exponent = largest_exponent(s, step * groups, groups, row, column + v * lanes, c);
    sums[v] = GroupSums<Floats>(exponent, s.rounding.alignment_fraction_bits, c);
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    Vector<float> group[kVectorsAtOnce];
    sum_group(a + g * kGroupTerms, b + g * kGroupTerms * width, group);
    const std::int64_t at = step * groups + g;
    const double a_scale = s.a.scale[at * s.a.stride + row];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectorsAtOnce; ++v)
      sums[v].add(group[v], a_scale, s.b.scale + at * s.b.stride + column + v * lanes);
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectorsAtOnce; ++v)
    hn::Store(sums[v].result(s.rounding.output_fraction_bits), d, state + v * lanes);
}

void scaled_groups(const GroupBlock& from) {
  const GroupBlock s = from;  // what is stored might be part of `from` for the compiler
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  for (std::int64_t step = 0; step < s.steps.steps; ++step)
    for (std::int64_t row = 0; row < s.steps.rows; ++row)
      for (std::int64_t v = 0; v < kVectors; v += kVectorsAtOnce)
        scaled_columns(s, step, row, v * lanes);
}

const GroupKernels* group_kernels() {
  static const GroupKernels kTable{scaled_groups};
  return &kTable;
}

#else
const GroupKernels* group_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(GroupKernels, group_kernels)

}  // namespace fp8lab::gemm_detail
#endif
