#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/units/fused_dot_product.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// The IEEE 754 sum of two numbers of `output`, nearest even.
float add(FormatId output, float x, float y) {
  Specials specials;
  specials.note_value(unpack_float(x));
  specials.note_value(unpack_float(y));
  if (specials.any()) return specials.result();
  if (x == 0.0F && y == 0.0F && std::signbit(x) && std::signbit(y)) return -0.0F;
  KulischAccumulator sum;
  add(sum, as_term(unpack_float(x)));
  add(sum, as_term(unpack_float(y)));
  return output == FormatId::f16 ? round_to_half(sum.value(), RoundingMode::nearest_even)
                                 : round_to_float(sum.value(), 23, RoundingMode::nearest_even);
}

class Fp16Halves final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& model) const override {
    std::vector<std::string_view> names = fused_parameters(model);
    names.emplace_back("halves_order");
    return names;
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return fused_traits(model);
  }

  void validate(const AccumulatorModel& m) const override {
    require(m.terms % 4 == 0, "terms", "a multiple of 4 (fp16_halves)", m.terms);
  }
  [[nodiscard]] bool takes(const Format& operand) const override { return fits_half(operand); }
  [[nodiscard]] std::string_view operands() const override {
    return "an 8-bit format whose values FP16 has (fp16_halves)";
  }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    if (model.output_format == FormatId::f16) c = rounded_to_half(c);
    const auto terms = static_cast<std::size_t>(model.terms);
    std::size_t begin = 0;
    do {
      const std::size_t count = std::min(terms, a.size() - begin);
      c = add(model.output_format, c,
              instruction(model, a.subspan(begin, count), b.subspan(begin, count)));
      begin += count;
    } while (begin < a.size());
    return c;
  }

  /// Instruction by instruction: two fused steps from zero, whose sum is added in the output's
  /// format. FP8 operands bring exponents that are not below those of their FP16 values.
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    const AccumulatorModel half = step_of_halves(model);
    for_steps(model, terms, [&](auto instruction) {
      BoundedSum both = bounded_start(half, 0.0);
      std::vector<BoundedTerm> step;
      for (int place = 0; place < model.terms;) {
        step.clear();
        for (int i = 0; i < half.terms; ++i, ++place) {
          const auto at = static_cast<std::size_t>(term_of_halves(place, model.terms));
          if (at < instruction.size()) step.push_back(instruction[at]);
        }
        if (model.halves_order == HalvesOrder::chained) {
          bound_fused_step(half, step, both);
        } else {
          BoundedSum one = bounded_start(half, 0.0);
          bound_fused_step(half, step, one);
          both.add_rounded(one, model.output_format);
        }
      }
      sum.add_rounded(both, model.output_format);
    });
  }

 private:
  /// The sum of one instruction's products, which c joins.
  static float instruction(const AccumulatorModel& model, std::span<const Unpacked> a,
                           std::span<const Unpacked> b) {
    const AccumulatorModel step = step_of_halves(model);
    std::vector<Unpacked> a_half;
    std::vector<Unpacked> b_half;
    float sum = 0.0F;
    for (int place = 0; place < model.terms;) {
      const bool first = place == 0;
      a_half.clear();
      b_half.clear();
      for (int i = 0; i < step.terms; ++i, ++place) {
        const auto term = static_cast<std::size_t>(term_of_halves(place, model.terms));
        if (term >= a.size()) continue;
        a_half.push_back(as_half(a[term], "a"));
        b_half.push_back(as_half(b[term], "b"));
      }
      if (first || model.halves_order == HalvesOrder::chained)
        sum = fused_chain(step, a_half, b_half, sum);
      else
        sum = add(model.output_format, sum, fused_chain(step, a_half, b_half, 0.0F));
    }
    return sum;
  }
};

}  // namespace

const AccumulatorUnit& fp16_halves_unit() {
  static const Fp16Halves unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
