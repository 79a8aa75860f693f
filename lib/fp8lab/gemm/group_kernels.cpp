#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/group_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Floats = Tag<float>;
using Words = Tag<std::int32_t>;
using Doubles = Tag<double>;
using HalfFloats = hn::Half<Floats>;
using HalfWords = hn::Half<Words>;

constexpr int kVectorsAtOnce = 2;  // of columns, which share the broadcast values of A
constexpr int kPartialSums = 2;    // of a group: they are exact in any order

/// Below all exponents that scales or c can bring.
constexpr std::int32_t kNothing = -1000;

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
  // A c of zero brings nothing, a subnormal one the smallest normal number's exponent.
  const auto field = hn::And(hn::ShiftRight<23>(hn::BitCast(d, c)), hn::Set(d, 255));
  const auto stored = hn::Max(hn::Sub(field, hn::Set(d, 127)), hn::Set(d, -126));
  const auto zero = hn::RebindMask(d, hn::Eq(c, hn::Zero(Floats())));
  auto largest =
      hn::Max(hn::IfThenElse(zero, hn::Set(d, kNothing), stored), hn::Set(d, s.exponent_floor));
  for (std::int64_t g = group; g < group + groups; ++g) {
    const std::int64_t at_a = g * s.a.stride + row;
    const std::int64_t at_b = g * s.b.stride + column;
    const auto both = hn::And(hn::Set(du, s.a.nonzero[at_a]), hn::LoadU(du, s.b.nonzero + at_b));
    const auto exponent =
        hn::Add(hn::Set(d, s.a.exponent[at_a]), hn::LoadU(d, s.b.exponent + at_b));
    const auto nothing = hn::RebindMask(d, hn::Eq(both, hn::Zero(du)));
    largest = hn::Max(largest, hn::IfThenElse(nothing, hn::Set(d, kNothing), exponent));
  }
  return largest;
}

/// 1.5 * 2^52 units of 2^(exponent - fraction_bits).
HWY_INLINE Vector<double> magic_number(hn::Vec<HalfWords> exponent, int fraction_bits) {
  const Tag<std::int64_t> d;
  const auto field =
      hn::Add(hn::PromoteTo(d, exponent), hn::Set(d, std::int64_t{1023} + 52 - fraction_bits));
  return hn::BitCast(Doubles(),
                     hn::Or(hn::ShiftLeft<52>(field), hn::Set(d, std::int64_t{1} << 51)));
}

/// x truncated toward zero to the units of `magic`. Needs rounding toward zero.
HWY_INLINE Vector<double> aligned(Vector<double> x, Vector<double> magic) {
  return hn::CopySign(hn::Sub(hn::Add(hn::Abs(x), magic), magic), x);
}

/// Sums of two halves of a vector, added up in units that they have in common.
struct Sums {
  Vector<double> magic[2];
  Vector<double> sum[2];

  HWY_INLINE Sums(Vector<std::int32_t> exponent, int fraction_bits, Vector<float> c) {
    const Doubles dd;
    magic[0] = magic_number(hn::LowerHalf(HalfWords(), exponent), fraction_bits);
    magic[1] = magic_number(hn::UpperHalf(HalfWords(), exponent), fraction_bits);
    sum[0] = aligned(hn::PromoteTo(dd, hn::LowerHalf(HalfFloats(), c)), magic[0]);
    sum[1] = aligned(hn::PromoteTo(dd, hn::UpperHalf(HalfFloats(), c)), magic[1]);
  }
  HWY_INLINE Sums() = default;

  HWY_INLINE void add(Vector<float> group, Vector<double> a_scale, const double* b_scale) {
    const Doubles dd;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(dd));
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(HalfFloats(), group));
    const auto high = hn::PromoteTo(dd, hn::UpperHalf(HalfFloats(), group));
    const auto low_scale = hn::Mul(a_scale, hn::LoadU(dd, b_scale));
    const auto high_scale = hn::Mul(a_scale, hn::LoadU(dd, b_scale + lanes));
    sum[0] = hn::Add(sum[0], aligned(hn::Mul(low, low_scale), magic[0]));
    sum[1] = hn::Add(sum[1], aligned(hn::Mul(high, high_scale), magic[1]));
  }

  /// Truncated to binary32.
  [[nodiscard]] HWY_INLINE Vector<float> result(std::int32_t kept) const {
    const HalfFloats dh;
    const Words dw;
    const auto all = hn::Combine(Floats(), hn::DemoteTo(dh, sum[1]), hn::DemoteTo(dh, sum[0]));
    return hn::BitCast(Floats(), hn::And(hn::BitCast(dw, all), hn::Set(dw, kept)));
  }
};

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
  const auto kept = static_cast<std::int32_t>(~((1u << (23 - s.output_fraction_bits)) - 1u));
  Sums sums[kVectorsAtOnce];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectorsAtOnce; ++v) {
    const auto c = hn::Load(d, state + v * lanes);
    sums[v] = Sums(largest_exponent(s, step * groups, groups, row, column + v * lanes, c),
                   s.alignment_fraction_bits, c);
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    Vector<float> group[kVectorsAtOnce];
    sum_group(a + g * kGroupTerms, b + g * kGroupTerms * width, group);
    const std::int64_t at = step * groups + g;
    const auto a_scale = hn::Set(Doubles(), s.a.scale[at * s.a.stride + row]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectorsAtOnce; ++v)
      sums[v].add(group[v], a_scale, s.b.scale + at * s.b.stride + column + v * lanes);
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectorsAtOnce; ++v) hn::Store(sums[v].result(kept), d, state + v * lanes);
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
