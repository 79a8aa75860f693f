// What ends a step of scaled groups, whose exact sums are integers or binary32: docs/lab/gemm.md,
// "Block scales". In lanes of outputs, of any number; included once for each target.

#include <cstdint>

#include "fp8lab/gemm/unit_kernels.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_GROUP_STEPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_GROUP_STEPS_INL
#undef FP8LAB_GEMM_GROUP_STEPS_INL
#else
#define FP8LAB_GEMM_GROUP_STEPS_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

/// Below all exponents that scales or c can bring.
constexpr std::int32_t kNothing = -1000;

/// What c brings to the alignment, at least the floor: nothing if it is zero, and the smallest
/// normal number's exponent if it is subnormal.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> exponent_of_c(D df, hn::Vec<D> c,
                                                        const GroupRounding& rounding) {
  const hn::RebindToSigned<D> d;
  const auto field = hn::And(hn::ShiftRight<23>(hn::BitCast(d, c)), hn::Set(d, 255));
  const auto stored = hn::Max(hn::Sub(field, hn::Set(d, 127)), hn::Set(d, -126));
  const auto zero = hn::RebindMask(d, hn::Eq(c, hn::Zero(df)));
  return hn::Max(hn::IfThenElse(zero, hn::Set(d, kNothing), stored),
                 hn::Set(d, rounding.exponent_floor));
}

/// The same with a group of the exponent a + b, of which `both` has a bit for each product that is
/// not zero.
template <class D, class V = hn::Vec<D>, class VU = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE V with_group(D d, V largest, V exponent, VU both) {
  const hn::RebindToUnsigned<D> du;
  const auto nothing = hn::RebindMask(d, hn::Eq(both, hn::Zero(du)));
  return hn::Max(largest, hn::IfThenElse(nothing, hn::Set(d, kNothing), exponent));
}

/// Sums of the two halves of a vector of floats, D, added up in units that they have in common.
/// Needs rounding toward zero.
template <class D>
class GroupSums {
  using HalfFloats = hn::Half<D>;
  using Words = hn::RebindToSigned<D>;
  using HalfWords = hn::RebindToSigned<HalfFloats>;
  using Doubles = hn::Rebind<double, HalfFloats>;
  using Reals = hn::Vec<Doubles>;

 public:
  HWY_INLINE GroupSums() = default;
  HWY_INLINE GroupSums(hn::Vec<Words> exponent, int fraction_bits, hn::Vec<D> c) {
    const Doubles dd;
    magic_[0] = magic_number(hn::LowerHalf(HalfWords(), exponent), fraction_bits);
    magic_[1] = magic_number(hn::UpperHalf(HalfWords(), exponent), fraction_bits);
    sum_[0] = aligned(hn::PromoteTo(dd, hn::LowerHalf(HalfFloats(), c)), magic_[0]);
    sum_[1] = aligned(hn::PromoteTo(dd, hn::UpperHalf(HalfFloats(), c)), magic_[1]);
  }

  /// Adds exact sums, binary32 or integers, with the scale of A and those of B.
  template <class V>
  HWY_INLINE void add(V group, double a_scale, const double* b_scale) {
    const Doubles dd;
    const hn::Half<hn::DFromV<V>> half;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(dd));
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(half, group));
    const auto high = hn::PromoteTo(dd, hn::UpperHalf(half, group));
    const auto a = hn::Set(dd, a_scale);
    const auto low_scale = hn::Mul(a, hn::LoadU(dd, b_scale));
    const auto high_scale = hn::Mul(a, hn::LoadU(dd, b_scale + lanes));
    sum_[0] = hn::Add(sum_[0], aligned(hn::Mul(low, low_scale), magic_[0]));
    sum_[1] = hn::Add(sum_[1], aligned(hn::Mul(high, high_scale), magic_[1]));
  }

  /// Truncated to binary32 with so many fraction bits.
  [[nodiscard]] HWY_INLINE hn::Vec<D> result(int fraction_bits) const {
    const HalfFloats dh;
    const Words dw;
    const auto kept = static_cast<std::int32_t>(~((1u << (23 - fraction_bits)) - 1u));
    const auto all = hn::Combine(D(), hn::DemoteTo(dh, sum_[1]), hn::DemoteTo(dh, sum_[0]));
    return hn::BitCast(D(), hn::And(hn::BitCast(dw, all), hn::Set(dw, kept)));
  }

 private:
  /// 1.5 * 2^52 units of 2^(exponent - fraction_bits).
  static HWY_INLINE Reals magic_number(hn::Vec<HalfWords> exponent, int fraction_bits) {
    const hn::RebindToSigned<Doubles> d;
    const auto field =
        hn::Add(hn::PromoteTo(d, exponent), hn::Set(d, std::int64_t{1023} + 52 - fraction_bits));
    return hn::BitCast(Doubles(),
                       hn::Or(hn::ShiftLeft<52>(field), hn::Set(d, std::int64_t{1} << 51)));
  }
  /// x truncated toward zero to the units of `magic`.
  static HWY_INLINE Reals aligned(Reals x, Reals magic) {
    return hn::CopySign(hn::Sub(hn::Add(hn::Abs(x), magic), magic), x);
  }

  Reals magic_[2];
  Reals sum_[2];
};

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
