#include "fp8lab/accumulate/units/binary32.hpp"

#include <bit>
#include <cmath>

namespace fp8lab::accumulate_detail {
namespace {

constexpr int kSmallestNormalBinade = -126;

}  // namespace

int binade_of(const Exact& x) { return x.exponent + 63 - std::countl_zero(x.significand); }

Unpacked Binary32::read(const Unpacked& x) const {
  if (subnormals_ != Subnormals::flushed || !x.is_finite() || x.significand == 0) return x;
  if (binade_of(exact_of(as_term(x))) >= kSmallestNormalBinade) return x;
  Unpacked zero = x;
  zero.significand = 0;
  zero.value_class = ValueClass::zero;
  return zero;
}

float Binary32::rounded(const Exact& x) const {
  constexpr auto kNearest = RoundingMode::nearest_even;
  if (subnormals_ != Subnormals::kept) {
    const Exact unbounded = exact_of(accumulate_detail::rounded(x, 23, kNearest));
    if (binade_of(unbounded) < kSmallestNormalBinade) return x.negative ? -0.0F : 0.0F;
  }
  return round_to_float(x, 23, kNearest);
}

float Binary32::multiply_add(const Unpacked& a, const Unpacked& b, float c) const {
  const Unpacked x = read(a);
  const Unpacked y = read(b);
  const Unpacked start = read(unpack_float(c));
  Specials specials;
  specials.note_value(start);
  specials.note_product(x, y);
  if (specials.any()) return specials.result();
  const Term p = product(x, y);
  if (p.significand == 0 && start.significand == 0)
    return p.negative && start.negative ? -0.0F : 0.0F;
  KulischAccumulator sum;
  accumulate_detail::add(sum, p);
  accumulate_detail::add(sum, as_term(start));
  const Exact exact = sum.value();
  return exact.significand == 0 ? 0.0F : rounded(exact);
}

float Binary32::add(float x, float y) const {
  static const Unpacked one = unpack_float(1.0F);
  return multiply_add(unpack_float(x), one, y);
}

void bound_roundings(std::span<const BoundedTerm> step, int roundings, double step_error,
                     Subnormals subnormals, BoundedSum& sum) {
  const double before = std::abs(sum.value) + sum.error;
  const double magnitude = before + sum.add_exactly(step);
  if (subnormals == Subnormals::flushed) sum.error += flushed_error(step) + 0x1p-126;
  sum.error += roundings * (magnitude + sum.error) * step_error;
  sum.error += roundings * (subnormals == Subnormals::kept ? kTiny : 0x1p-126);
  sum.overflows |= !(magnitude < format(FormatId::f32).max_finite());
  sum.check_range(FormatId::f32);
}

}  // namespace fp8lab::accumulate_detail
