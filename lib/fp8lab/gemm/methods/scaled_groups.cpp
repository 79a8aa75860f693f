// Fused steps of groups of E2M1's products, each an exact sum with scales. docs/lab/gemm.md, "Block
// scales".

#include <algorithm>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// Up to so many rows kernels along k are faster: docs/lab/gemm.md.
constexpr std::int64_t kMostGroupDotRows = 8;

class ScaledGroups final : public MethodOf<float> {
 public:
  explicit ScaledGroups(const MethodRequest& r)
      : rounding_{.alignment_fraction_bits = r.model().alignment_fraction_bits,
                  .output_fraction_bits = r.model().output_fraction_bits,
                  .exponent_floor =
                      std::max(r.model().min_alignment_exponent, kDoubleExponentFloor - 1023)} {
    const GemmProblem& p = r.problem;
    form_.terms = r.model().terms;
    form_.scale_terms = kGroupTerms;
    form_.notes_zeros = true;
    form_.group_dots = form_.terms == kGroupDotTerms && p.a.rows <= kMostGroupDotRows &&
                       p.b.rows >= kColumnsPerRow * p.a.rows;
  }

  [[nodiscard]] std::string_view name() const override { return "scaled groups"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    return ProductRange(a, b, k).sum_top < 126;
  }

  void run(const TileSteps<float>& steps) const override {
    const std::int64_t group = steps.first * (form_.terms / kGroupTerms);
    const GroupScales a = steps.rows.scales.from(group);
    const GroupScales b = steps.panel.scales().from(group);
    if (form_.along_k()) return run_dots(steps, a, b);
    const GroupBlock block{.steps = block_of(steps), .a = a, .b = b, .rounding = rounding_};
    const TowardZero toward_zero;
    steps.kernels.units->groups.scaled(block);
  }

 private:
  void run_dots(const TileSteps<float>& steps, const GroupScales& a, const GroupScales& b) const {
    GroupDotBlock block;
    block.rows = steps.rows.rows;
    block.steps = steps.count;
    block.terms = form_.terms;
    block.a = steps.rows.twice.data() + steps.first * steps.rows.rows * form_.terms;
    block.scale_a = a;
    block.scale_b = b;
    block.rounding = rounding_;
    steps.panel.place(block, steps.first);
    block.state = steps.state;
    const TowardZero toward_zero;
    steps.kernels.units->group_dots.scaled(block);
  }

  GroupRounding rounding_;
};

}  // namespace

/// Scaled terms have 12 + 8 bits and stay 11 above the alignment.
MethodPtr plan_scaled_groups(const MethodRequest& r) {
  constexpr int kMostFraction = 36;
  const AccumulatorModel& m = r.model();
  return r.kind == AccumulationKind::scaled_group_dot_product &&
                 m.rounding == RoundingMode::toward_zero &&
                 m.alignment_fraction_bits <= kMostFraction
             ? std::make_unique<ScaledGroups>(r)
             : nullptr;
}

}  // namespace fp8lab::gemm_detail
