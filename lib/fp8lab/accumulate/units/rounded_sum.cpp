// The exact sum of a step's products, rounded to binary32, then added to c in binary32: AMX tiles
// of FP8, Arm's BFDOT with FEAT_EBF16 and FDOT of FP16; and ACE's outer products of FP8 with block
// scales.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/units/binary32.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

/// The sum of products times 2^scale, rounded. Special values: those of the products.
float sum_of_products(const AccumulatorModel& model, std::span<const Unpacked> a,
                      std::span<const Unpacked> b, int scale) {
  Specials specials;
  specials.note_products(a, b);
  if (specials.any()) return specials.result();
  KulischAccumulator sum;
  bool all_negative_zeros = !a.empty();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Term p = product(a[i], b[i]);
    all_negative_zeros &= p.significand == 0 && p.negative;
    add(sum, p);
  }
  Exact exact = sum.value();
  if (exact.significand == 0)
    return all_negative_zeros && model.zero_sign == ZeroSign::kept ? -0.0F : 0.0F;
  exact.exponent += scale;
  return Binary32(model.subnormals).rounded(exact);
}

void bound_rounded_sum(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                       BoundedSum& sum) {
  // Operands of 8 bits have no subnormals of binary32; those of BF16 are read as they are.
  const Subnormals results =
      model.subnormals == Subnormals::kept ? Subnormals::kept : Subnormals::flushed_results;
  bound_roundings(terms, 2, kFloatStep, results, sum);
  if (model.subnormals == Subnormals::flushed) sum.error += 0x1p-126;  // c's
}

constexpr UnitTraits kRoundedSumTraits{
    .has_steps = true, .rounds_sums = true, .cut_fraction_bits = 24};

class RoundedSum final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "zero_sign", "subnormals"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return kRoundedSumTraits;
  }
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      const auto b_step = b.subspan(first, step.size());
      c = Binary32(model.subnormals).add(c, sum_of_products(model, step, b_step, 0));
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) { bound_rounded_sum(model, step, sum); });
  }
};

/// ACE's: four products of FP8, whose codes are all numbers, under one scale an operand.
class ScaledRoundedSum final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "zero_sign", "subnormals"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    UnitTraits traits = kRoundedSumTraits;
    traits.takes_scales = true;
    return traits;
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms >= 1 && kBlock % m.terms == 0, "terms",
            "1, 2, 4, 8, 16 or 32: parts of the block that a scale covers (scaled_rounded_sum)",
            m.terms);
  }
  [[nodiscard]] bool takes(const Format& operand) const override {
    return operand.id == FormatId::e4m3fn || operand.id == FormatId::e5m2;
  }
  [[nodiscard]] std::string_view operands() const override {
    return "e4m3fn or e5m2 (scaled_rounded_sum)";
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
    const std::vector<Unpacked> x = as_numbers(a);
    const std::vector<Unpacked> y = as_numbers(b);
    const std::span<const Unpacked> all = x;
    for_steps(model, all, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - all.data());
      const auto y_step = std::span<const Unpacked>(y).subspan(first, step.size());
      const Unpacked none = scale_at({}, {}, 0);
      const Unpacked of_a = step.empty() ? none : scale_at(scales, scales.a, first);
      const Unpacked of_b = step.empty() ? none : scale_at(scales, scales.b, first);
      c = scaled_step(model, step, y_step, of_a, of_b, c);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) { bound_rounded_sum(model, step, sum); });
  }

 private:
  static constexpr int kBlock = 32;

  static float scaled_step(const AccumulatorModel& model, std::span<const Unpacked> a,
                           std::span<const Unpacked> b, const Unpacked& a_scale,
                           const Unpacked& b_scale, float c) {
    Specials of_scales;
    of_scales.note_value(a_scale);
    of_scales.note_value(b_scale);
    if (of_scales.any()) return of_scales.result();
    const float sum = sum_of_products(model, a, b, a_scale.exponent + b_scale.exponent);
    return Binary32(model.subnormals).add(c, sum);
  }

  /// A code of NaN or infinity has the exponent field of ones, as the formula for numbers reads it.
  static Unpacked as_number(Unpacked x) {
    if (x.is_finite()) return x;
    const Format& f = format(x.mantissa_bits == 2 ? FormatId::e5m2 : FormatId::e4m3fn);
    const int field = (1 << f.exponent_bits) - 1;
    x.significand |= std::uint32_t{1} << f.mantissa_bits;
    x.exponent = static_cast<std::int16_t>(field - f.bias);
    x.value_class = ValueClass::normal;
    return x;
  }
  static std::vector<Unpacked> as_numbers(std::span<const Unpacked> operands) {
    std::vector<Unpacked> numbers;
    numbers.reserve(operands.size());
    for (const Unpacked& x : operands) numbers.push_back(as_number(x));
    return numbers;
  }
};

}  // namespace

const AccumulatorUnit& rounded_sum_unit() {
  static const RoundedSum unit;
  return unit;
}

const AccumulatorUnit& scaled_rounded_sum_unit() {
  static const ScaledRoundedSum unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
