// CDNA3 (MI300): MFMA of FP8 and BF8, which are E4M3FNUZ and E5M2FNUZ. From MMA-Sim and the MATLAB
// models of Khattak and Mikaitis, which agree on the order; not measured here.

#include <algorithm>

#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/accumulate/units/two_stage.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// Both groups' sums, each rounded down to the larger exponent of the two.
FirstStage sum_of_groups(const AccumulatorModel& model, const FirstStage& even,
                         const FirstStage& odd) {
  FirstStage both{0, std::max(even.exponent, odd.exponent)};
  const int bits = model.alignment_fraction_bits;
  for (const FirstStage& group : {even, odd})
    if (group.exponent != kNoExponent)
      both.value += aligned_down(group.value, group.exponent - bits, both.exponent - bits);
  return both;
}

class EvenOddDotProduct final : public TwoStageUnit {
 public:
  [[nodiscard]] bool takes(const Format& operand) const override {
    return operand.storage_bits == 8 && operand.has_sign;
  }
  [[nodiscard]] std::string_view operands() const override {
    return "a format of at most 8 bits (even_odd_dot_product)";
  }

 private:
  [[nodiscard]] float step(const AccumulatorModel& model, std::span<const Unpacked> a,
                           std::span<const Unpacked> b, float c) const override {
    Specials specials;
    specials.note_value(unpack_float(c));
    specials.note_products(a, b);
    if (specials.any()) return specials.result();
    if (all_negative_zeros(a, b, c)) return -0.0F;
    ProductSum even(model);
    ProductSum odd(model);
    for (std::size_t i = 0; i < a.size(); ++i) (i % 2 == 0 ? even : odd).add(product(a[i], b[i]));
    return add_second_stage(model, sum_of_groups(model, even.sum(), odd.sum()), c, true);
  }
};

}  // namespace

const AccumulatorUnit& even_odd_dot_product_unit() {
  static const EvenOddDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
