// CDNA3 (MI300): MFMA of FP16, BF16 and XF32. From mmasim 2.1.1 and the MATLAB models of Khattak
// and Mikaitis; not measured here.

#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/accumulate/units/two_stage.hpp"

namespace fp8lab::accumulate_detail {
namespace {

class TwoStageDotProduct final : public TwoStageUnit {
 private:
  [[nodiscard]] float step(const AccumulatorModel& model, std::span<const Unpacked> a,
                           std::span<const Unpacked> b, float c) const override {
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
};

}  // namespace

const AccumulatorUnit& two_stage_dot_product_unit() {
  static const TwoStageDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
