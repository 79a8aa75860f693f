// MFMA of binary32, of all CDNA chips: an IEEE 754 fused multiply-add a term, in order.

#include <bit>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/float32.hpp"
#include "fp8lab/accumulate/units/steps.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// c + a * b of finite numbers, rounded once.
float fused_multiply_add(const Unpacked& a, const Unpacked& b, float c) {
  const Term p = product(a, b);
  if (p.significand == 0 && c == 0.0F) return p.negative && std::signbit(c) ? -0.0F : 0.0F;
  KulischAccumulator sum;
  add(sum, p);
  add(sum, as_term(unpack_float(c)));
  return round_to_float(sum.value(), 23, RoundingMode::nearest_even);
}

class FusedMultiplyAdd final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.cut_fraction_bits = 24};
  }
  [[nodiscard]] bool takes(const Format& operand) const override {
    return operand.id == FormatId::f32;
  }
  [[nodiscard]] std::string_view operands() const override { return "f32 (fused_multiply_add)"; }

  [[nodiscard]] float dot_product(const AccumulatorModel& /*model*/, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    for (std::size_t i = 0; i < a.size(); ++i) {
      Specials specials;
      specials.note_value(unpack_float(c));
      specials.note_product(a[i], b[i]);
      c = specials.any() ? specials.result() : fused_multiply_add(a[i], b[i], c);
    }
    return std::isnan(c) ? std::bit_cast<float>(kCanonicalNan) : c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    bound_float32(model, terms, sum);
  }
};

}  // namespace

const AccumulatorUnit& fused_multiply_add_unit() {
  static const FusedMultiplyAdd unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
