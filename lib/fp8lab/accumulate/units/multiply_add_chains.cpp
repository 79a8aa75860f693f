// AMX tiles of BF16, FP16 and TF32: products are dealt among chains of binary32 FMAs, which start
// from zero; the chains are added, and then c.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/units/binary32.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

class MultiplyAddChains final : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {"terms", "chains", "subnormals"};
  }
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.has_steps = true, .rounds_sums = true, .cut_fraction_bits = 24};
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.chains >= 1 && m.chains <= kMostChains, "chains", "1 to 8 (multiply_add_chains)",
            m.chains);
  }

  /// A last step of fewer terms has shorter chains, as a tile of fewer rows has.
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    const Binary32 binary32(model.subnormals);
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      c = binary32.add(c, tile(model, step, b.subspan(first, step.size()), binary32));
    });
    return c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) {
      // One rounding a product, those of the chains' sum, and that with c.
      bound_roundings(step, static_cast<int>(step.size()) + model.chains, kFloatStep,
                      model.subnormals, sum);
    });
  }

 private:
  static constexpr int kMostChains = 8;

  /// The sum of the chains, in order.
  [[nodiscard]] static float tile(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const Binary32& binary32) {
    const auto chains = static_cast<std::size_t>(model.chains);
    std::array<float, kMostChains> sums{};
    for (std::size_t i = 0; i < a.size(); ++i) {
      float& chain = sums[i % chains];
      chain = binary32.multiply_add(a[i], b[i], chain);
    }
    float sum = sums[0];
    for (std::size_t i = 1; i < chains; ++i) sum = binary32.add(sum, sums[i]);
    return sum;
  }
};

}  // namespace

const AccumulatorUnit& multiply_add_chains_unit() {
  static const MultiplyAddChains unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
