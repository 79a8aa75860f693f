// VDPBF16PS (AVX512-BF16) and VDPPHPS (AVX10.2): FMAs of binary32 from c on, that of the pair's
// odd, upper element first.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/units/binary32.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

class MultiplyAddPairs final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "subnormals"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.has_steps = true, .rounds_sums = true, .cut_fraction_bits = 24};
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms == 2, "terms", "2 (multiply_add_pairs)", m.terms);
  }

  /// Elements that a last, shorter pair lacks are +0.
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    const Binary32 binary32(model.subnormals);
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      const auto b_step = b.subspan(first, step.size());
      for (const std::size_t i : {1U, 0U})
        c = binary32.multiply_add(operand_at(step, i), operand_at(b_step, i), c);
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms,
              [&](auto step) { bound_roundings(step, 2, kFloatStep, model.subnormals, sum); });
  }
};

}  // namespace

const AccumulatorUnit& multiply_add_pairs_unit() {
  static const MultiplyAddPairs unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
