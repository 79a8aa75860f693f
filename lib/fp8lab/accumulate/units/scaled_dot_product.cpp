// mxf8f6f4 (tcgen05, and mma.block_scale of sm_120): the fused truncated dot product of products
// whose exponents include those of the scales. FP6 and FP4 operands bring their own stored
// exponents. From MMA-Sim, and mmasim 2.1.1 for FP6 and FP4; not measured here.

#include <algorithm>
#include <cmath>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/fused_dot_product.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

constexpr int kBlock = 32;

/// One step under one scale an operand.
float step(const AccumulatorModel& model, std::span<const Unpacked> a, std::span<const Unpacked> b,
           const Unpacked& a_scale, const Unpacked& b_scale, float c) {
  Specials specials;
  specials.note_value(unpack_float(c));
  specials.note_value(a_scale);
  specials.note_value(b_scale);
  specials.note_products(a, b);
  if (specials.any()) return specials.result();
  const int scale_exponent = a_scale.exponent + b_scale.exponent;
  const auto scaled_product = [&](std::size_t i) {
    Term p = product(a[i], b[i]);
    p.exponent += scale_exponent;
    return p;
  };
  const Term c_term = as_term(unpack_float(c));
  int largest = c_term.alignment_exponent();
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, scaled_product(i).alignment_exponent());
  if (largest == kNoExponent) return 0.0F;
  const int unit = std::max(largest, model.min_alignment_exponent) - model.alignment_fraction_bits;
  Wide sum = aligned_toward_zero(c_term, unit);
  for (std::size_t i = 0; i < a.size(); ++i) sum += aligned_toward_zero(scaled_product(i), unit);
  return with_zero_sign(
      model, round_to_float(exact_of(sum, unit), model.output_fraction_bits, model.rounding));
}

class ScaledDotProduct final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms",    "alignment_fraction_bits", "output_fraction_bits",
            "rounding", "min_alignment_exponent",  "zero_sign"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    UnitTraits traits = fused_traits(model);
    traits.takes_scales = true;
    return traits;
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms == kBlock, "terms", "32, as one scale covers (scaled_dot_product)", m.terms);
    require(m.output_format == FormatId::f32, "output_format", "f32 (scaled_dot_product)",
            format(m.output_format).name);
  }
  [[nodiscard]] bool takes(const Format& operand) const override {
    return operand.storage_bits == 8 && operand.has_sign;
  }
  [[nodiscard]] std::string_view operands() const override {
    return "a format of at most 8 bits (scaled_dot_product)";
  }
  [[nodiscard]] bool takes_scales(const AccumulatorModel& /*model*/, FormatId id,
                                  int block) const override {
    return id == FormatId::e8m0fnu && block == kBlock;
  }
  [[nodiscard]] std::string scale_forms(const AccumulatorModel& /*model*/) const override {
    return "e8m0fnu per 32";
  }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& scales,
                                  float c) const override {
    for_steps(model, a, [&](auto part) {
      const auto first = static_cast<std::size_t>(part.data() - a.data());
      c = part.empty()
              ? step(model, {}, {}, scale_at({}, {}, 0), scale_at({}, {}, 0), c)
              : step(model, part, b.subspan(first, part.size()), scale_at(scales, scales.a, first),
                     scale_at(scales, scales.b, first), c);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto part) { bound_fused_step(model, part, sum); });
  }
};

}  // namespace

const AccumulatorUnit& scaled_dot_product_unit() {
  static const ScaledDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
