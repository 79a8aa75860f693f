// Sums rounded after every product. docs/lab/gemm.md, "Sequential sums".

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/methods/two_words.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr std::int64_t kMostTerms = 32;

template <typename T>
class Sequential : public MethodOf<T> {
 public:
  explicit Sequential(const MethodRequest& r)
      : rounding_{.fraction_bits = r.model().output_fraction_bits,
                  .product_fraction_bits = rounded_product_bits(r)} {
    rounding_.few_significands = rounding_.product_fraction_bits >= 0 && r.a->mantissa_bits <= 3;
    this->form_.terms = r.plain_terms(rounding_.few_significands ? kTermsOfProducts : kMostTerms);
  }

  [[nodiscard]] std::string_view name() const override { return "sequential"; }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent < 128;
  }

  SequentialRounding rounding_;
};

class TruncatedFloat final : public Sequential<float> {
 public:
  using Sequential::Sequential;

  void run(const TileSteps<float>& steps) const override {
    const StepBlock<float> block = block_of(steps);
    const TowardZero toward_zero;
    steps.kernels.sequential.truncated_float(block, rounding_);
  }

  void extract(const Kernels& /*kernels*/, const RowOfSums<float>& row) const override {
    copy_sums(row);
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent - 23 >= -126 && exponent < 120;
  }
};

class TruncatedDouble final : public Sequential<double> {
 public:
  using Sequential::Sequential;

  void run(const TileSteps<double>& steps) const override {
    const StepBlock<double> block = block_of(steps);
    const TowardZero toward_zero;
    steps.kernels.sequential.truncated_double(block, rounding_);
  }
};

/// To nearest even, of products that have no more bits than the sums. Short sums, which start from
/// zero, have at most 52 bits before they are rounded, which takes an operation less.
class NearestDouble final : public Sequential<double> {
 public:
  NearestDouble(const MethodRequest& r, bool short_sums) : Sequential(r) {
    rounding_.short_sums = short_sums;
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    return rounding_.short_sums ? std::make_unique<NearestDouble>(r, false) : nullptr;
  }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    if (!rounding_.short_sums) return true;
    const ProductRange range(a, b, k);
    return sum_top(range) - range.low < kDoubleBits;
  }

  void run(const TileSteps<double>& steps) const override {
    steps.kernels.sequential.nearest_double(block_of(steps), rounding_);
  }

 protected:
  /// c may have more bits than a sum: its first sum must be exact if products are the smaller.
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& a,
                             const RowSummary& b) const override {
    return exponent < 128 && exponent + 2 - (a.lowest + b.lowest) <= kDoubleBits;
  }

 private:
  /// Sums are below 2^this, however many products they have: from 2^(top + fraction bits + 1) on, a
  /// product is at most half of a sum's last bit and makes it no larger.
  [[nodiscard]] int sum_top(const ProductRange& range) const {
    return range.top + rounding_.fraction_bits + 2;
  }
};

/// The same of any exact products.
class NearestOfOdd final : public Sequential<double> {
 public:
  using Sequential::Sequential;

  void run(const TileSteps<double>& steps) const override {
    const StepBlock<double> block = block_of(steps);
    const TowardZero toward_zero;
    steps.kernels.sequential.nearest_of_odd_double(block, rounding_);
  }
};

MethodPtr plan_nearest(const MethodRequest& r, int rounded) {
  const int bits = rounded >= 0 ? rounded : r.a->mantissa_bits + r.b->mantissa_bits + 1;
  if (bits <= r.model().output_fraction_bits) {
    const bool short_sums = r.problem.c == nullptr;
    return std::make_unique<NearestDouble>(r, short_sums);
  }
  return rounded >= 0 ? nullptr : std::make_unique<NearestOfOdd>(r);
}

}  // namespace

MethodPtr plan_sequential(const MethodRequest& r) {
  if (r.kind != AccumulationKind::sequential) return nullptr;
  const int rounded = rounded_product_bits(r);
  if (r.model().rounding == RoundingMode::nearest_even) return plan_nearest(r, rounded);
  if (r.model().rounding != RoundingMode::toward_zero || rounded >= 0) return nullptr;
  // Sums of such products are no subnormals of binary32, and far from its end.
  if (r.a->exponent_bits <= 5 && r.b->exponent_bits <= 5)
    return std::make_unique<TruncatedFloat>(r);
  return std::make_unique<TruncatedDouble>(r);
}

}  // namespace fp8lab::gemm_detail
