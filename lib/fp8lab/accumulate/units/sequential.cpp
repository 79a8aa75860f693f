#include <cmath>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"

namespace fp8lab::accumulate_detail {
namespace {

class Sequential final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"output_fraction_bits", "rounding", "product_fraction_bits"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return {.rounds_sums = true, .cut_fraction_bits = model.output_fraction_bits};
  }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    Specials specials;
    specials.note_value(unpack_float(c));
    specials.note_products(a, b);
    if (specials.any()) return specials.result();
    Term sum = as_term(unpack_float(c));
    for (std::size_t i = 0; i < a.size(); ++i) {
      Term p = product(a[i], b[i]);
      if (model.product_fraction_bits >= 0)
        p = rounded(exact_of(p), model.product_fraction_bits, RoundingMode::nearest_even);
      KulischAccumulator partial;
      add(partial, sum);
      add(partial, p);
      sum = rounded(partial.value(), model.output_fraction_bits, model.rounding);
    }
    return round_to_float(exact_of(sum), 23, RoundingMode::nearest_even);
  }

  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    if (bounded_alignment(terms, sum).live == 0) return;
    double partial = 0.0;
    double reached = 0.0;
    for (const BoundedTerm& term : terms) {
      if (term.value == 0.0) continue;
      partial += term.value;
      reached += std::abs(sum.value + partial) + sum.error;
      if (model.product_fraction_bits >= 0)
        sum.error += std::ldexp(std::abs(term.value), -model.product_fraction_bits);
    }
    sum.add_exactly(terms);
    // Errors of earlier partial sums enter later ones: a factor (1 + u)^n, below 2 here. The last
    // one becomes binary32.
    sum.error += 2.0 * std::ldexp(reached, -model.output_fraction_bits) + kTiny;
    sum.check_range(model.output_format);
  }
};

}  // namespace

const AccumulatorUnit& sequential_unit() {
  static const Sequential unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
