// CDNA2 (MI210, MI250): FP16 and BF16 MFMA. Binary32 arithmetic on groups of products, in which
// every subnormal number is zero. From MMA-Sim (both of its states agree); not measured here.

#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

float flushed(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

/// An operand's value; one below the smallest normal number is +0.
float value_of(const Unpacked& x) {
  float magnitude = 0.0F;
  switch (x.value_class) {
    case ValueClass::nan:
      return std::bit_cast<float>(kCanonicalNan);
    case ValueClass::infinity:
      magnitude = std::numeric_limits<float>::infinity();
      break;
    case ValueClass::zero:
    case ValueClass::subnormal:
      return 0.0F;
    default:
      magnitude = std::ldexp(static_cast<float>(x.significand), x.exponent - x.mantissa_bits);
  }
  return x.negative ? -magnitude : magnitude;
}

/// The flushed sum of one group; products that it lacks are +0.
float group_sum(int terms, std::span<const Unpacked> a, std::span<const Unpacked> b) {
  std::array<float, 4> p{};
  for (std::size_t i = 0; i < a.size(); ++i) p[i] = flushed(value_of(a[i]) * value_of(b[i]));
  if (terms == 2) return flushed(p[0] + p[1]);
  return flushed(flushed(p[0] + p[1]) + flushed(p[2] + p[3]));
}

class FlushedPairwiseSum final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.has_steps = true, .rounds_sums = true, .cut_fraction_bits = 24};
  }

  void validate(const AccumulatorModel& m) const override {
    require(m.terms == 2 || m.terms == 4, "terms", "2 or 4 (flushed_pairwise_sum)", m.terms);
  }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    c = std::fabs(c) < 0x1p-126F ? 0.0F : c;
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      c = flushed(c + group_sum(model.terms, step, b.subspan(first, step.size())));
    });
    return std::isnan(c) ? std::bit_cast<float>(kCanonicalNan) : c;
  }

  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    constexpr double kFlushed = 0x1p-126;
    for_steps(model, terms, [&](auto step) {
      const double magnitude = sum.add_exactly(step);
      sum.error += flushed_error(step);
      // A product, two sums of the group and the sum with c are rounded, or flushed.
      sum.error += 4.0 * magnitude * kFloatStep;
      sum.error += (std::abs(sum.value) + sum.error) * kFloatStep;
      sum.error += 9.0 * kFlushed;
      sum.overflows |= !(magnitude < format(FormatId::f32).max_finite());
      sum.check_range(FormatId::f32);
    });
  }
};

}  // namespace

const AccumulatorUnit& flushed_pairwise_sum_unit() {
  static const FlushedPairwiseSum unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
