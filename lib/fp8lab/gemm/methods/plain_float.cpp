// Sums in plain binary32 arithmetic: FMAs in k order, and CDNA2's sums of pairs.
// docs/lab/gemm.md, "CDNA2".

#include <cmath>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

class Float32 final : public MethodOf<float> {
 public:
  explicit Float32(const MethodRequest& r) { form_.terms = r.plain_terms(); }

  [[nodiscard]] std::string_view name() const override { return "float32"; }

  /// Products that binary32 holds.
  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return range.top < 127 && range.low >= -149;
  }

  void run(const TileSteps<float>& steps) const override {
    steps.kernels.sums.plain_float(block_of(steps));
  }

  void extract(const Kernels& /*kernels*/, const RowOfSums<float>& row) const override {
    copy_sums(row);
  }
};

/// Arithmetic that the processor has, with all special values and signs of zero.
class PlainFloat : public MethodOf<float> {
 public:
  PlainFloat(const MethodRequest& r, std::int64_t group) {
    form_.terms = r.plain_terms(32, group);
    form_.group = group;
    sums_.takes_everything = true;
    // Binary32's field of infinities is that of formats with its exponents.
    sums_.takes_infinities = r.a->exponent_bits == 8 && r.b->exponent_bits == 8;
  }
};

class MultiplyAdds final : public PlainFloat {
 public:
  explicit MultiplyAdds(const MethodRequest& r) : PlainFloat(r, 1) {}

  [[nodiscard]] std::string_view name() const override { return "multiply-adds"; }

  void run(const TileSteps<float>& steps) const override {
    steps.kernels.sums.plain_float(block_of(steps));
  }

  void start(std::span<const float> c, float* state) const override {
    for (std::size_t i = 0; i < c.size(); ++i) state[i] = c[i];
  }
};

class FlushedPairs final : public PlainFloat {
 public:
  explicit FlushedPairs(const MethodRequest& r) : PlainFloat(r, r.model().terms) {
    form_.flushes_subnormals = true;
  }

  [[nodiscard]] std::string_view name() const override { return "flushed pairs"; }

  void run(const TileSteps<float>& steps) const override {
    const StepBlock<float> block = block_of(steps);
    const FlushedSubnormals flushed(Subnormals::flushed_results);
    steps.kernels.units->pairs.flushed(block, form_.group);
  }

  void start(std::span<const float> c, float* state) const override {
    for (std::size_t i = 0; i < c.size(); ++i) state[i] = std::fabs(c[i]) < 0x1p-126F ? 0.0F : c[i];
  }
};

}  // namespace

MethodPtr plan_float32(const MethodRequest& r) {
  return r.kind == AccumulationKind::float32 ? std::make_unique<Float32>(r) : nullptr;
}

MethodPtr plan_multiply_adds(const MethodRequest& r) {
  return r.kind == AccumulationKind::fused_multiply_add ? std::make_unique<MultiplyAdds>(r)
                                                        : nullptr;
}

MethodPtr plan_flushed_pairs(const MethodRequest& r) {
  const auto fits = [](const Format& f) { return f.exponent_bits + f.mantissa_bits < 16; };
  return r.kind == AccumulationKind::flushed_pairwise_sum && fits(*r.a) && fits(*r.b)
             ? std::make_unique<FlushedPairs>(r)
             : nullptr;
}

}  // namespace fp8lab::gemm_detail
