// One exact sum, rounded once. docs/lab/gemm.md, "Exact steps and sums".

#include "fp8lab/gemm/methods/lines.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/methods/two_words.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

class Exact final : public MethodOf<double> {
 public:
  explicit Exact(const MethodRequest& r, TwoWords words = {}) : words_(words) {
    form_.terms = r.plain_terms();
    form_.lines = !words.used() && sums_along_k(r.problem, form_.terms, kMostLineRows);
    sums_.adds_c_last = true;
    sums_.low_states = words.used();
  }

  [[nodiscard]] std::string_view name() const override { return "exact"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return words_.used() ||
           (range.sum_top - range.low <= kDoubleBits && range.sum_top < 126 && range.low > -149);
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    const TwoWords words = find_two_words(*r.a, *r.b, r.problem.a.k);
    return words.used() ? std::make_unique<Exact>(r, words) : nullptr;
  }

  void run(const TileSteps<double>& steps) const override {
    if (form_.lines) {
      const ExactLines sums(steps, true);
      for (std::int64_t row = 0; row < steps.rows.rows; ++row)
        steps.kernels.sums.plain_double(sums.block(steps, row));
      return;
    }
    const StepBlock<double> block = block_of(steps);
    if (!words_.used()) return steps.kernels.sums.plain_double(block);
    const TowardZero toward_zero;
    steps.kernels.sums.two_word_sums(block, words_);
  }

  void extract(const Kernels& kernels, const RowOfSums<double>& row) const override {
    const TowardZero toward_zero;
    if (words_.used())
      kernels.sums.round_two_words(row.state, row.low_state, row.c, words_, row.out, row.width);
    else
      kernels.sums.round_exact(row.state, row.c, row.out, row.width);
  }

 protected:
  [[nodiscard]] bool takes_c(float c, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return words_.used() ? take_start(words_, c) : exponent < 120;
  }

 private:
  TwoWords words_;
};

}  // namespace

MethodPtr plan_exact(const MethodRequest& r) {
  return r.arithmetic == Arithmetic::exact ? std::make_unique<Exact>(r) : nullptr;
}

}  // namespace fp8lab::gemm_detail
