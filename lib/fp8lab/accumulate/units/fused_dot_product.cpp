#include "fp8lab/accumulate/units/fused_dot_product.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"

namespace fp8lab::accumulate_detail {
namespace {

int leading_exponent(const Term& t) {
  return t.exponent - t.fraction_bits + 63 - std::countl_zero(t.significand);
}

int alignment_exponent(const AccumulatorModel& model, const Term& t) {
  if (t.significand == 0) return kNoExponent;
  return model.product_exponent == ProductExponent::normalized ? leading_exponent(t) : t.exponent;
}

/// The exponent that the accumulator brings to the alignment.
int alignment_exponent_of_c(const AccumulatorModel& model, const Term& c) {
  if (c.significand == 0) return kNoExponent;
  const bool stored_half =
      model.output_format == FormatId::f16 && model.half_c_exponent == HalfCExponent::stored;
  return stored_half ? std::max(c.exponent, format(FormatId::f16).min_exponent()) : c.exponent;
}

/// One step: at most `model.terms` finite products and a finite c.
float fused_step(const AccumulatorModel& model, std::span<const Unpacked> a,
                 std::span<const Unpacked> b, float c) {
  const int largest = fused_alignment(model, a, b, c);
  if (largest == kNoExponent) return 0.0F;

  const int unit_exponent = largest - model.alignment_fraction_bits;
  Wide sum = aligned_toward_zero(as_term(unpack_float(c)), unit_exponent);
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += aligned_toward_zero(product(a[i], b[i]), unit_exponent);

  const Exact exact = exact_of(sum, unit_exponent);
  return with_zero_sign(model,
                        model.output_format == FormatId::f16
                            ? round_to_half(exact, model.rounding)
                            : round_to_float(exact, model.output_fraction_bits, model.rounding));
}

class FusedDotProduct final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& model) const override {
    return fused_parameters(model);
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return fused_traits(model);
  }
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    return fused_chain(model, a, b, c);
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) { bound_fused_step(model, step, sum); });
  }
};

}  // namespace

float with_zero_sign(const AccumulatorModel& model, float rounded) {
  return rounded == 0.0F && model.zero_sign == ZeroSign::positive ? 0.0F : rounded;
}

int fused_alignment(const AccumulatorModel& model, std::span<const Unpacked> a,
                    std::span<const Unpacked> b, float c) {
  int largest = alignment_exponent_of_c(model, as_term(unpack_float(c)));
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, alignment_exponent(model, product(a[i], b[i])));
  return largest == kNoExponent ? kNoExponent : std::max(largest, model.min_alignment_exponent);
}

float fused_chain(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c) {
  if (model.output_format == FormatId::f16) c = rounded_to_half(c);
  const auto terms = static_cast<std::size_t>(model.terms);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(terms, a.size() - begin);
    const auto a_step = a.subspan(begin, count);
    const auto b_step = b.subspan(begin, count);
    Specials specials;
    specials.note_value(unpack_float(c));
    specials.note_products(a_step, b_step);
    c = specials.any() ? specials.result() : fused_step(model, a_step, b_step, c);
    begin += count;
  } while (begin < a.size());
  return c;
}

void bound_fused_step(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                      BoundedSum& sum) {
  const bool starts = std::abs(sum.value) + sum.error > 0.0;
  Alignment alignment = bounded_alignment(terms, sum);
  if (alignment.live == 0) return;
  alignment.largest = std::max(alignment.largest, model.min_alignment_exponent);
  const bool half = model.output_format == FormatId::f16;
  if (half && starts)  // a subnormal c
    alignment.largest = std::max(alignment.largest, format(FormatId::f16).min_exponent());
  sum.add_exactly(terms);
  sum.error += alignment.live * std::ldexp(1.0, alignment.largest - model.alignment_fraction_bits);
  sum.error += std::ldexp(std::abs(sum.value) + sum.error, -model.output_fraction_bits);
  sum.error += half ? 0x1p-24 : kTiny;
  sum.check_range(model.output_format);
}

std::vector<std::string_view> fused_parameters(const AccumulatorModel& model) {
  std::vector<std::string_view> names{"terms",         "alignment_fraction_bits",
                                      "rounding",      "min_alignment_exponent",
                                      "output_format", "product_exponent"};
  names.emplace_back(model.output_format == FormatId::f16 ? "half_c_exponent"
                                                          : "output_fraction_bits");
  names.emplace_back("zero_sign");
  return names;
}

UnitTraits fused_traits(const AccumulatorModel& model) {
  // An alignment that loses nothing leaves the output as the cut.
  const int cut = model.alignment_fraction_bits > 30 ? model.output_fraction_bits + 1
                                                     : model.alignment_fraction_bits;
  return {.has_steps = true, .aligns = true, .rounds_sums = true, .cut_fraction_bits = cut};
}

const AccumulatorUnit& fused_dot_product_unit() {
  static const FusedDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
