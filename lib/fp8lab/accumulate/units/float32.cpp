#include "fp8lab/accumulate/units/float32.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"

namespace fp8lab::accumulate_detail {
namespace {

class Float32 final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    return {.cut_fraction_bits = model.output_fraction_bits};
  }

  /// Binary32 additions of the products, each product rounded to binary32 first where it does not
  /// fit (only BF16 and TF32 products near the range's ends).
  [[nodiscard]] float dot_product(const AccumulatorModel& /*model*/, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    Specials specials;
    specials.note_value(unpack_float(c));
    specials.note_products(a, b);
    if (specials.any()) return specials.result();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Term p = product(a[i], b[i]);
      if (p.significand == 0) continue;
      c += round_to_float(exact_of(p), 23, RoundingMode::nearest_even);
    }
    // An infinity of a sum that left the range meets one of the other sign.
    if (std::isnan(c)) return std::bit_cast<float>(kCanonicalNan);
    return c == 0.0F ? 0.0F : c;
  }

  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    bound_float32(model, terms, sum);
  }
};

}  // namespace

void bound_float32(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                   BoundedSum& sum) {
  if (bounded_alignment(terms, sum).live == 0) return;
  double partial = 0.0;
  double reached = 0.0;
  double furthest = 0.0;  // an infinity of a product or of a sum on the way stays
  double rounded = 0.0;
  for (const BoundedTerm& term : terms) {
    if (term.value == 0.0) continue;
    partial += term.value;
    const double sum_so_far = std::abs(sum.value + partial);
    reached += sum_so_far + sum.error;
    furthest = std::max({furthest, sum_so_far, std::abs(term.value)});
    // Half a step of the subnormals: sums of whole steps lose nothing more.
    if (std::fmod(term.value, kTiny) != 0.0) rounded += 0.5 * kTiny;
  }
  sum.add_exactly(terms);
  sum.error += 2.0 * reached * kFloatStep + rounded;
  sum.overflows |= !(furthest + sum.error < format(model.output_format).max_finite());
  sum.check_range(model.output_format);
}

const AccumulatorUnit& float32_unit() {
  static const Float32 unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
