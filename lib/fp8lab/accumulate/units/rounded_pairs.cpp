// Two products, their sum, and that with c, each rounded to binary32 with everything below 2^-126
// flushed: Arm's BFDOT and BFMMLA (rounded to odd), and ACE's outer product of BF16 (to nearest).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/units/binary32.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// Rounded to odd: cut to binary32's precision, and the last bit set if something was cut off.
/// Numbers below 2^-126 before that become zero, those from 2^128 on infinite.
float rounded_to_odd(const Exact& x) {
  constexpr int kFractionBits = 23;
  const int binade = binade_of(x);
  if (binade < -126) return x.negative ? -0.0F : 0.0F;
  float magnitude = std::numeric_limits<float>::infinity();
  if (binade <= 127) {
    const int cut = binade - kFractionBits - x.exponent;
    std::uint64_t kept = cut > 0 ? x.significand >> cut : x.significand << -cut;
    const bool inexact = x.sticky || (cut > 0 && (kept << cut) != x.significand);
    if (inexact) kept |= 1;
    magnitude = std::ldexp(static_cast<float>(kept), binade - kFractionBits);
  }
  return x.negative ? -magnitude : magnitude;
}

/// The arithmetic of one pair: operands and results below 2^-126 are zero.
class PairArithmetic {
 public:
  explicit PairArithmetic(PairRounding rounding) : rounding_(rounding) {}

  [[nodiscard]] float multiply(const Unpacked& a, const Unpacked& b) const {
    const Unpacked x = binary32_.read(a);
    const Unpacked y = binary32_.read(b);
    Specials specials;
    specials.note_product(x, y);
    if (specials.any()) return specials.result();
    const Term p = product(x, y);
    if (p.significand == 0) return p.negative ? -0.0F : 0.0F;
    return result(exact_of(p));
  }

  [[nodiscard]] float add(float a, float b) const {
    const Unpacked x = binary32_.read(unpack_float(a));
    const Unpacked y = binary32_.read(unpack_float(b));
    Specials specials;
    specials.note_value(x);
    specials.note_value(y);
    if (specials.any()) return specials.result();
    if (x.significand == 0 && y.significand == 0) return x.negative && y.negative ? -0.0F : 0.0F;
    KulischAccumulator sum;
    accumulate_detail::add(sum, as_term(x));
    accumulate_detail::add(sum, as_term(y));
    const Exact exact = sum.value();
    return exact.significand == 0 ? 0.0F : result(exact);
  }

 private:
  [[nodiscard]] float result(const Exact& x) const {
    return rounding_ == PairRounding::to_odd ? rounded_to_odd(x) : binary32_.rounded(x);
  }

  PairRounding rounding_;
  Binary32 binary32_{Subnormals::flushed};
};

class RoundedPairs final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "pair_rounding"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.has_steps = true, .rounds_sums = true, .cut_fraction_bits = 23};
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms == 2, "terms", "2 (rounded_pairs)", m.terms);
  }

  /// Elements that a last, shorter pair lacks are +0.
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    const PairArithmetic pair(model.pair_rounding);
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      const auto b_step = b.subspan(first, step.size());
      const auto product_of = [&](std::size_t i) {
        return pair.multiply(operand_at(step, i), operand_at(b_step, i));
      };
      c = pair.add(c, pair.add(product_of(0), product_of(1)));
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    // Rounding to odd may be off by a whole last place.
    const double step_error =
        model.pair_rounding == PairRounding::to_odd ? 2.0 * kFloatStep : kFloatStep;
    for_steps(model, terms,
              [&](auto step) { bound_roundings(step, 4, step_error, Subnormals::flushed, sum); });
  }
};

}  // namespace

const AccumulatorUnit& rounded_pairs_unit() {
  static const RoundedPairs unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
