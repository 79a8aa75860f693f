// CDNA3 (MI300): MFMA of FP16, BF16 and XF32. From MMA-Sim and the MATLAB models of Khattak and
// Mikaitis; not measured here.

#include "fp8lab/accumulate/units/two_stage.hpp"
#include "fp8lab/accumulate/units/units.hpp"

namespace fp8lab::accumulate_detail {
namespace {

float step(const AccumulatorModel& model, std::span<const Unpacked> a, std::span<const Unpacked> b,
           float c) {
  Specials specials;
  specials.note_value(unpack_float(c));
  specials.note_products(a, b);
  ProductSum products(model);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].is_finite() || !b[i].is_finite()) continue;
    const Term p = product(a[i], b[i]);
    if (passes_binary32(p))
      specials.note_infinity(p.negative);
    else
      products.add(p);
  }
  if (specials.any()) return specials.result();
  if (all_negative_zeros(a, b, c)) return -0.0F;
  return add_second_stage(model, products.sum(), c, false);
}

class TwoStageDotProduct final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return two_stage_parameters();
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return two_stage_traits(model, Arithmetic::two_stage);
  }
  void validate(const AccumulatorModel& model) const override { validate_two_stage(model); }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    for_steps(model, a, [&](auto part) {
      const auto first = static_cast<std::size_t>(part.data() - a.data());
      c = step(model, part, b.subspan(first, part.size()), c);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    bound_two_stage(model, terms, sum);
  }
};

}  // namespace

const AccumulatorUnit& two_stage_dot_product_unit() {
  static const TwoStageDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
