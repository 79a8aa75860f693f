// Fused steps of groups of E2M1's products, each an exact sum with scales. docs/lab/gemm.md, "Block
// scales".

#include <algorithm>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/operand_scales.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

class ScaledGroups final : public MethodOf<float> {
 public:
  explicit ScaledGroups(const MethodRequest& r)
      : alignment_fraction_bits_(r.model().alignment_fraction_bits),
        output_fraction_bits_(r.model().output_fraction_bits),
        exponent_floor_(std::max(r.model().min_alignment_exponent, kDoubleExponentFloor - 1023)) {
    form_.terms = r.model().terms;
    form_.scale_terms = kGroupTerms;
    form_.notes_zeros = true;
  }

  [[nodiscard]] std::string_view name() const override { return "scaled groups"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    return ProductRange(a, b, k).sum_top < 126;
  }

  void run(const TileSteps<float>& steps) const override {
    const std::int64_t group = steps.first * (form_.terms / kGroupTerms);
    const GroupBlock block{.steps = block_of(steps),
                           .a = steps.a_scales->from(group, steps.row),
                           .b = steps.b_scales->from(group, steps.column),
                           .alignment_fraction_bits = alignment_fraction_bits_,
                           .output_fraction_bits = output_fraction_bits_,
                           .exponent_floor = exponent_floor_};
    const TowardZero toward_zero;
    steps.kernels.units->groups.scaled(block);
  }

 private:
  int alignment_fraction_bits_;
  int output_fraction_bits_;
  int exponent_floor_;
};

}  // namespace

/// Scaled terms have 12 + 8 bits and stay 11 above the alignment.
MethodPtr plan_scaled_groups(const MethodRequest& r) {
  constexpr int kMostFraction = 36;
  const AccumulatorModel& m = r.model();
  return r.arithmetic == Arithmetic::scaled_groups && m.rounding == RoundingMode::toward_zero &&
                 m.alignment_fraction_bits <= kMostFraction
             ? std::make_unique<ScaledGroups>(r)
             : nullptr;
}

}  // namespace fp8lab::gemm_detail
