// Units of x86 and Arm whose sums are binary32 arithmetic: chains and pairs.
// docs/lab/gemm.md, "Units of processors".

#include <cmath>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/methods/two_words.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr float kLeastNormal = 0x1p-126F;

float flushed(float x) { return std::fabs(x) < kLeastNormal ? std::copysign(0.0F, x) : x; }

using Kernel = void (*)(const StepBlock<float>&, const ProcessorRule&);

class OfProcessor : public MethodOf<float> {
 public:
  [[nodiscard]] std::string_view name() const override { return name_; }

  void run(const TileSteps<float>& steps) const override {
    const StepBlock<float> block = block_of(steps);
    const FlushedSubnormals flushed_subnormals(rule_.subnormals);
    (steps.kernels.units->processors.*kernel_)(block, rule_);
  }

  void start(std::span<const float> c, float* state) const override {
    const bool flushes = rule_.subnormals == Subnormals::flushed;
    for (std::size_t i = 0; i < c.size(); ++i) state[i] = flushes ? flushed(c[i]) : c[i];
  }

 protected:
  /// Kernel steps of `terms`; what is after the last of K's groups leaves any sum alone.
  OfProcessor(std::string_view name, Kernel ProcessorKernels::*kernel, ProcessorRule rule,
              std::int64_t terms, std::int64_t group)
      : rule_(rule), name_(name), kernel_(kernel) {
    form_.terms = terms;
    form_.group = group;
    sums_.marks_overflow = !kSubnormalsByMode && rule.subnormals != Subnormals::kept;
  }

  ProcessorRule rule_;

 private:
  std::string_view name_;
  Kernel ProcessorKernels::*kernel_;
};

/// Arithmetic that the processor has, with all special values and signs of zero.
class AnyData final : public OfProcessor {
 public:
  AnyData(const MethodRequest& r, std::string_view name, Kernel ProcessorKernels::*kernel,
          ProcessorRule rule, std::int64_t terms, std::int64_t group)
      : OfProcessor(name, kernel, rule, terms, group) {
    sums_.takes_everything = true;
    // Binary32's field of infinities is that of formats with its exponents.
    sums_.takes_infinities = r.a->exponent_bits == 8 && r.b->exponent_bits == 8;
  }
};

constexpr std::int64_t kPair = 2;
constexpr std::int64_t kTermsOfPairs = 32;  // a kernel step of pairs

/// Sums of two products that binary32 holds, rounded once.
class ExactPairs final : public OfProcessor {
 public:
  explicit ExactPairs(const MethodRequest& r)
      : OfProcessor("rounded sums", &ProcessorKernels::exact_pairs,
                    {.subnormals = r.model().subnormals}, r.plain_terms(kTermsOfPairs, kPair), 1) {}

  /// The unit reads operands as they are, which x86's modes do not, and rounds the sum alone.
  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    if (rule_.subnormals == Subnormals::kept) return range.top < 127 && range.low >= -149;
    return range.top < 127 && range.low >= -126 && a.lowest >= -126 && b.lowest >= -126;
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int /*exponent*/, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return true;
  }
};

/// Sums of products with block scales that binary64 holds. All codes are numbers, and scales are
/// powers of two, which change no sum but its exponent.
class ScaledSums final : public MethodOf<double> {
 public:
  explicit ScaledSums(const MethodRequest& r) : rule_{.subnormals = r.model().subnormals} {
    form_.terms = r.model().terms;
    form_.all_numbers = form_.scales_values = form_.any_scales = true;
    sums_.has_own_zeros = true;  // tiny sums are flushed to zeros of their sign; others are +0
    sums_.drops_negative_zero = r.model().zero_sign == ZeroSign::kept;
  }

  [[nodiscard]] std::string_view name() const override { return "scaled sums"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t /*k*/) const override {
    const ProductRange range(a, b, form_.terms);
    return range.sum_top - range.low <= kDoubleBits;
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    const bool all = takes(widest_row(*r.a, true), widest_row(*r.b, true), r.problem.a.k);
    return all ? nullptr : plan_wide_scaled_sums(r);
  }

  void run(const TileSteps<double>& steps) const override {
    const StepBlock<double> block = block_of(steps);
    const FlushedSubnormals flushed_subnormals(rule_.subnormals);
    steps.kernels.units->processors.scaled_sums(block, rule_);
  }

  void start(std::span<const float> c, double* state) const override {
    const bool flushes = rule_.subnormals == Subnormals::flushed;
    for (std::size_t i = 0; i < c.size(); ++i)
      state[i] = static_cast<double>(flushes ? flushed(c[i]) : c[i]);
  }

  void extract(const Kernels& /*kernels*/, const RowOfSums<double>& row) const override {
    for (std::int64_t j = 0; j < row.width; ++j)
      row.out[j] = canonical(static_cast<float>(row.state[j]));
  }

 protected:
  /// A flushing mode reads no subnormal state.
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent >= -126 || rule_.subnormals != Subnormals::flushed_results;
  }

 private:
  ProcessorRule rule_;
};

/// Two products, their sum, and that with c, each rounded to odd.
class OddPairs final : public OfProcessor {
 public:
  explicit OddPairs(const MethodRequest& r)
      : OfProcessor("rounded pairs", &ProcessorKernels::odd_pairs,
                    {.subnormals = Subnormals::flushed}, r.plain_terms(kTermsOfPairs, kPair),
                    kPair) {}

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    return ProductRange(a, b, k).sum_top < 126;
  }

  void run(const TileSteps<float>& steps) const override {
    const TowardZero toward_zero;
    OfProcessor::run(steps);
  }

  void extract(const Kernels& /*kernels*/, const RowOfSums<float>& row) const override {
    for (std::int64_t j = 0; j < row.width; ++j) row.out[j] = flushed(row.state[j]);
  }
};

}  // namespace

MethodPtr plan_scaled_sums(const MethodRequest& r) {
  return r.kind == AccumulationKind::scaled_rounded_sum ? std::make_unique<ScaledSums>(r) : nullptr;
}

MethodPtr plan_multiply_add_chains(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  if (r.kind != AccumulationKind::multiply_add_chains) return nullptr;
  const ProcessorRule rule{.subnormals = m.subnormals, .chains = m.chains};
  return std::make_unique<AnyData>(r, "multiply-add chains", &ProcessorKernels::chains, rule,
                                   m.terms, 1);
}

MethodPtr plan_multiply_add_pairs(const MethodRequest& r) {
  if (r.kind != AccumulationKind::multiply_add_pairs) return nullptr;
  return std::make_unique<AnyData>(r, "multiply-add pairs", &ProcessorKernels::multiply_add_pairs,
                                   ProcessorRule{.subnormals = r.model().subnormals},
                                   r.plain_terms(kTermsOfPairs, kPair), kPair);
}

MethodPtr plan_rounded_pairs(const MethodRequest& r) {
  if (r.kind != AccumulationKind::rounded_pairs) return nullptr;
  if (r.model().pair_rounding == PairRounding::to_odd) return std::make_unique<OddPairs>(r);
  return std::make_unique<AnyData>(r, "rounded pairs", &ProcessorKernels::rounded_pairs,
                                   ProcessorRule{.subnormals = Subnormals::flushed},
                                   r.plain_terms(kTermsOfPairs, kPair), kPair);
}

MethodPtr plan_exact_pairs(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  const bool fits =
      r.kind == AccumulationKind::rounded_sum && m.terms == kPair && m.zero_sign == ZeroSign::kept;
  return fits ? std::make_unique<ExactPairs>(r) : nullptr;
}

}  // namespace fp8lab::gemm_detail
