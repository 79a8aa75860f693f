#include <cmath>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// c + a . b of finite numbers, rounded once to the format of the output.
float exact_sum(FormatId output, std::span<const Unpacked> a, std::span<const Unpacked> b,
                float c) {
  KulischAccumulator sum;
  add(sum, as_term(unpack_float(c)));
  for (std::size_t i = 0; i < a.size(); ++i) add(sum, product(a[i], b[i]));
  return output == FormatId::f16 ? round_to_half(sum.value(), RoundingMode::nearest_even)
                                 : round_to_float(sum.value(), 23, RoundingMode::nearest_even);
}

/// c + a . b, rounded once. `keeps_negative_zero`: if all terms are -0, their sum is too. Special
/// values come first: a NaN or an infinity has the significand 0, as zeros have.
float exact_step(FormatId output, std::span<const Unpacked> a, std::span<const Unpacked> b, float c,
                 bool keeps_negative_zero) {
  Specials specials;
  specials.note_value(unpack_float(c));
  specials.note_products(a, b);
  if (specials.any()) return specials.result();
  return keeps_negative_zero && all_negative_zeros(a, b, c) ? -0.0F : exact_sum(output, a, b, c);
}

void bound_step(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                BoundedSum& sum) {
  if (bounded_alignment(terms, sum).live == 0) return;
  sum.add_exactly(terms);
  sum.round_to(model.output_format);
  sum.error += kTiny;
  sum.check_range(model.output_format);
}

/// One rounding of the sum over all of K.
class ExactSum final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return {.cut_fraction_bits = model.output_fraction_bits, .keeps_all = true};
  }
  [[nodiscard]] float dot_product(const AccumulatorModel& /*model*/, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    return exact_step(FormatId::f32, a, b, c, false);
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    bound_step(model, terms, sum);
  }
};

/// One rounding a step: CDNA1, and Arm's dot products of FP8.
class ExactDotProduct final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "output_format"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return {.has_steps = true,
            .rounds_sums = true,
            .cut_fraction_bits = model.output_format == FormatId::f16 ? 11 : 24};
  }
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    if (model.output_format == FormatId::f16) c = rounded_to_half(c);
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      const auto b_step = b.subspan(first, step.size());
      c = exact_step(model.output_format, step, b_step, c, true);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) { bound_step(model, step, sum); });
  }
};

}  // namespace

const AccumulatorUnit& exact_unit() {
  static const ExactSum unit;
  return unit;
}

const AccumulatorUnit& exact_dot_product_unit() {
  static const ExactDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
