#include "fp8lab/accumulate/units/two_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// `sum` units of 2^unit rounded down to `fraction_bits`, of a number of binary32's exponents.
Wide rounded_down(Wide sum, int unit, int fraction_bits) {
  if (sum == 0) return 0;
  const Exact x = exact_of(sum, unit);
  const int leading = 63 - std::countl_zero(x.significand) + x.exponent;
  const int kept_unit = std::max(leading, kSmallestExponentOfC) - fraction_bits;
  if (kept_unit <= unit) return sum;
  return aligned_down(aligned_down(sum, unit, kept_unit), kept_unit, unit);
}

}  // namespace

void ProductSum::add(const Term& product) {
  terms_[count_++] = product;
  largest_ = std::max(largest_, product.alignment_exponent());
}

FirstStage ProductSum::sum() const {
  if (largest_ == kNoExponent) return {};
  FirstStage stage{0, largest_};
  for (std::size_t i = 0; i < count_; ++i)
    stage.value += aligned_toward_zero(terms_[i], largest_ - model_.alignment_fraction_bits);
  return stage;
}

float add_second_stage(const AccumulatorModel& model, const FirstStage& products, float c,
                       bool drops_small_c) {
  constexpr int kResultFractionBits = 31;
  const Term c_term = as_term(unpack_float(c));
  const int c_exponent = c_term.significand == 0 ? kSmallestExponentOfC : c_term.exponent;
  const int largest = std::max(products.exponent, c_exponent);
  const int first_bits = model.alignment_fraction_bits;
  const int second_bits = model.second_stage_fraction_bits;
  // Both in units of the finer of the two widths.
  const int unit = largest - std::max(first_bits, second_bits);
  Wide sum = 0;
  if (products.exponent != kNoExponent) {
    const Wide kept =
        aligned_down(products.value, products.exponent - first_bits, largest - second_bits);
    sum += aligned_down(kept, largest - second_bits, unit);
  }
  if (!drops_small_c || c_exponent >= largest - first_bits - 1) {
    const auto magnitude = static_cast<Wide>(c_term.significand);
    const Wide kept = aligned_down(c_term.negative ? -magnitude : magnitude,
                                   c_term.exponent - c_term.fraction_bits, largest - first_bits);
    sum += aligned_down(kept, largest - first_bits, unit);
  }
  if (second_bits > kResultFractionBits) sum = rounded_down(sum, unit, kResultFractionBits);
  return round_to_float(exact_of(sum, unit), 23, RoundingMode::nearest_even);
}

bool passes_binary32(const Term& product) {
  if (product.significand == 0) return false;
  return product.exponent - product.fraction_bits + 63 - std::countl_zero(product.significand) >=
         128;
}

void TwoStageUnit::validate(const AccumulatorModel& m) const {
  const auto check = [](std::string_view field, int value, int low, int high) {
    if (value < low || value > high)
      throw Error(field, fmt::format("{} .. {}", low, high), fmt::format("{}", value));
  };
  check("second_stage_fraction_bits", m.second_stage_fraction_bits, 1, 40);
  check("alignment_fraction_bits", m.alignment_fraction_bits, 1, 40);
}

std::vector<std::string_view> TwoStageUnit::parameters(const AccumulatorModel& /*model*/) const {
  return {"terms", "alignment_fraction_bits", "second_stage_fraction_bits"};
}

UnitTraits TwoStageUnit::traits(const AccumulatorModel& model) const {
  return {.has_steps = true,
          .aligns = true,
          .rounds_sums = true,
          .cut_fraction_bits = model.alignment_fraction_bits,
          .has_second_stage = true};
}

float TwoStageUnit::dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                float c) const {
  for_steps(model, a, [&](auto part) {
    const auto first = static_cast<std::size_t>(part.data() - a.data());
    c = step(model, part, b.subspan(first, part.size()), c);
  });
  return c;
}

void TwoStageUnit::bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                         BoundedSum& sum) const {
  for_steps(model, terms, [&](auto part) {
    Alignment alignment = bounded_alignment(part, sum);
    alignment.largest = std::max(alignment.largest, kSmallestExponentOfC);
    const double magnitude = sum.add_exactly(part);
    // Each product is truncated; two sums of them and c lose up to one unit each, and the last
    // rounding down is finer than the one to nearest after it.
    sum.error +=
        (alignment.live + 4) * std::ldexp(1.0, alignment.largest - model.alignment_fraction_bits);
    sum.error += 2.0 * (std::abs(sum.value) + sum.error) * kFloatStep + kTiny;
    sum.overflows |= !(magnitude < 0x1p127);
    sum.check_range(FormatId::f32);
  });
}

}  // namespace fp8lab::accumulate_detail
