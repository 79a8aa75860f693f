// mxf4nvf4 (tcgen05, and mma.block_scale of sm_120): E2M1 with a scale per 16 or 32 elements. From
// MMA-Sim; not measured here.

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/fused_dot_product.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

constexpr std::size_t kGroup = 16;
constexpr int kTerms = 64;

/// A group's exact sum times its scales. Its magnitude does not enter the exponent, nor does it
/// where the products cancel.
struct Group {
  Wide significand = 0;  ///< signed
  int exponent = kNoExponent;
  int fraction_bits = 0;
};

Group group_of(std::span<const Unpacked> a, std::span<const Unpacked> b, const Unpacked& a_scale,
               const Unpacked& b_scale) {
  Group group;
  bool any = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // In units of a quarter, the last place of E2M1's smallest product.
    const Wide quarters = aligned_toward_zero(product(a[i], b[i]), -2);
    any |= quarters != 0;
    group.significand += quarters;
  }
  const std::uint64_t scale = std::uint64_t{a_scale.significand} * b_scale.significand;
  if (!any || scale == 0) return {};
  group.significand *= static_cast<Wide>(scale);
  group.exponent = a_scale.exponent + b_scale.exponent;
  group.fraction_bits = 2 + a_scale.mantissa_bits + b_scale.mantissa_bits;
  return group;
}

Wide aligned(const Group& group, int unit) {
  if (group.significand == 0) return 0;
  const bool negative = group.significand < 0;
  const auto magnitude =
      static_cast<std::uint64_t>(negative ? -group.significand : group.significand);
  return aligned_toward_zero({magnitude, group.exponent, group.fraction_bits, negative}, unit);
}

class ScaledGroupDotProduct final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms",
            "alignment_fraction_bits",
            "output_fraction_bits",
            "rounding",
            "min_alignment_exponent",
            "zero_sign",
            "takes_ue4m3_per_32"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override {
    UnitTraits traits = fused_traits(model);
    traits.takes_scales = true;
    return traits;
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms == kTerms, "terms", "64 (scaled_group_dot_product)", m.terms);
    require(m.output_format == FormatId::f32, "output_format", "f32 (scaled_group_dot_product)",
            format(m.output_format).name);
  }
  [[nodiscard]] bool takes(const Format& operand) const override {
    return operand.id == FormatId::e2m1;
  }
  [[nodiscard]] std::string_view operands() const override {
    return "e2m1 (scaled_group_dot_product)";
  }
  [[nodiscard]] bool takes_scales(const AccumulatorModel& model, FormatId id,
                                  int block) const override {
    if (block != 16 && block != 32) return false;
    return id == FormatId::e8m0fnu ||
           (id == FormatId::e4m3fn && (block == 16 || model.takes_ue4m3_per_32));
  }
  [[nodiscard]] std::string scale_forms(const AccumulatorModel& model) const override {
    return model.takes_ue4m3_per_32 ? "e8m0fnu or ue4m3, per 16 or 32"
                                    : "e8m0fnu per 16 or 32, or ue4m3 per 16";
  }

  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& scales,
                                  float c) const override {
    for_steps(model, a, [&](auto part) {
      const auto first = static_cast<std::size_t>(part.data() - a.data());
      c = step(model, part, b.subspan(first, part.size()), scales, first, c);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    // A group's exponent is above those of its products less the two places of E2M1's exponents.
    for_steps(model, terms, [&](auto part) { bound_fused_step(model, part, sum); });
  }

 private:
  /// One step of at most four groups, the first of which begins with term `first` of K.
  static float step(const AccumulatorModel& model, std::span<const Unpacked> a,
                    std::span<const Unpacked> b, const BlockScales& scales, std::size_t first,
                    float c) {
    Specials specials;
    specials.note_value(unpack_float(c));
    std::array<Group, kTerms / kGroup> groups;
    int largest = as_term(unpack_float(c)).alignment_exponent();
    for (std::size_t at = 0; at < a.size(); at += kGroup) {
      const Unpacked a_scale = scale_at(scales, scales.a, first + at);
      const Unpacked b_scale = scale_at(scales, scales.b, first + at);
      specials.note_value(a_scale);
      specials.note_value(b_scale);
      const std::size_t count = std::min(kGroup, a.size() - at);
      Group& group = groups[at / kGroup];
      group = group_of(a.subspan(at, count), b.subspan(at, count), a_scale, b_scale);
      largest = std::max(largest, group.exponent);
    }
    if (specials.any()) return specials.result();
    if (largest == kNoExponent) return 0.0F;
    const int unit =
        std::max(largest, model.min_alignment_exponent) - model.alignment_fraction_bits;
    Wide sum = aligned_toward_zero(as_term(unpack_float(c)), unit);
    for (const Group& group : groups) sum += aligned(group, unit);
    return with_zero_sign(
        model, round_to_float(exact_of(sum, unit), model.output_fraction_bits, model.rounding));
  }
};

}  // namespace

const AccumulatorUnit& scaled_group_dot_product_unit() {
  static const ScaledGroupDotProduct unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
