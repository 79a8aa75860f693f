// Steps that are exact but for their last rounding: fused ones whose F loses no product bit, and
// CDNA1's. docs/lab/gemm.md, "Exact steps and sums" and "CDNA1".

#include <algorithm>
#include <cmath>

#include "fp8lab/gemm/methods/lines.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/methods/two_words.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr int kMostExactBits = 100;  // of sums in two words that follow the data

/// Fused steps.
class ExactSteps final : public MethodOf<double> {
 public:
  explicit ExactSteps(const MethodRequest& r, TwoWords words = {})
      : rounding_(step_rounding(r.model(), true)), words_(words) {
    form_.terms = r.model().terms;
    form_.lines = !words.used() && sums_along_k(r.problem, form_.terms, kMostLineRowsOfSteps);
    sums_.marks_overflow = words.used();
  }

  [[nodiscard]] std::string_view name() const override { return "exact steps"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    if (words_.used()) return true;
    const ProductRange range(a, b, k);
    return ProductRange(a, b, form_.terms).sum_top - range.low <= kDoubleBits &&
           range.sum_top < 120 && range.low > -120 &&
           range.sum_top + 1 - rounding_.alignment_fraction_bits <= range.low;
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    const RowSummary a = widest_row(*r.a);
    const RowSummary b = widest_row(*r.b);
    const int f = rounding_.alignment_fraction_bits;
    if (a.largest + b.largest - f > a.lowest + b.lowest) return nullptr;
    TwoWords words = find_two_words(*r.a, *r.b, form_.terms);
    if (!words.used()) return nullptr;
    words.limit = std::min(words.limit, std::ldexp(words.lowest, f + 1));
    return std::make_unique<ExactSteps>(r, words);
  }

  void run(const TileSteps<double>& steps) const override {
    if (form_.lines) {
      const ExactLines sums(steps, false);
      const TowardZero toward_zero;
      for (std::int64_t row = 0; row < steps.rows.rows; ++row)
        steps.kernels.sums.exact_steps(sums.block(steps, row), rounding_);
      return;
    }
    const StepBlock<double> block = block_of(steps);
    const TowardZero toward_zero;
    if (words_.used())
      steps.kernels.sums.two_word_steps(block, rounding_, words_);
    else
      steps.kernels.sums.exact_steps(block, rounding_);
  }

 protected:
  /// Neither may c truncate a product nor a product c.
  [[nodiscard]] bool takes_c(float c, int exponent, const RowSummary& a,
                             const RowSummary& b) const override {
    if (words_.used()) return take_start(words_, c);
    const int f = rounding_.alignment_fraction_bits;
    return exponent + 2 - f <= a.lowest + b.lowest && exponent - 23 >= a.largest + b.largest - f &&
           exponent > -100 && exponent < 120;
  }

 private:
  StepRounding rounding_;
  TwoWords words_;
};

/// CDNA1's, of any data.
class CheckedSteps final : public MethodOf<double> {
 public:
  explicit CheckedSteps(const MethodRequest& r) {
    form_.terms = r.model().terms;
    sums_.drops_negative_zero = true;
  }

  [[nodiscard]] std::string_view name() const override { return "exact steps"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return range.sum_top < 120 && range.low > -120 && range.sum_top - range.low <= kMostExactBits;
  }

  void run(const TileSteps<double>& steps) const override {
    steps.kernels.units->checked.exact_steps(block_of(steps));
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& a,
                             const RowSummary& b) const override {
    // K's length is not known here: 24 bits of it are enough for any.
    const int top = std::max(a.largest + b.largest + 2 + 24, exponent + 2);
    const int low = std::min(a.lowest + b.lowest, exponent - 23);
    return exponent < 120 && low > -120 && top - low <= kMostExactBits;
  }
};

}  // namespace

MethodPtr plan_exact_steps(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  const bool nearest =
      !r.half_output() && m.rounding == RoundingMode::nearest_even && m.output_fraction_bits == 23;
  const int lowest =
      r.a->min_exponent() - r.a->mantissa_bits + r.b->min_exponent() - r.b->mantissa_bits;
  const bool keeps_tiny = m.min_alignment_exponent - m.alignment_fraction_bits <= lowest;
  const bool fits = r.has_fused_steps() && !r.scaled && (r.truncates() || nearest) &&
                    m.alignment_fraction_bits >= 23 && keeps_tiny;
  return fits ? std::make_unique<ExactSteps>(r) : nullptr;
}

MethodPtr plan_checked_steps(const MethodRequest& r) {
  constexpr int kMostTerms = 32;
  return r.arithmetic == Arithmetic::exact_steps && r.model().terms <= kMostTerms
             ? std::make_unique<CheckedSteps>(r)
             : nullptr;
}

}  // namespace fp8lab::gemm_detail
