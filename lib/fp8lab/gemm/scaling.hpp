#pragma once
// The FP32 arithmetic around the tensor core, shared by reference and kernels.

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

inline float canonical(float x) { return std::isnan(x) ? std::bit_cast<float>(kCanonicalNan) : x; }

/// final + s_a * s_b * partial in the given order; NaN is canonical.
inline float scale_into(ScaleOrder order, float partial, float s_a, float s_b, float final) {
  switch (order) {
    case ScaleOrder::product_then_fma:
      return canonical(std::fma(s_a * s_b, partial, final));
    case ScaleOrder::product_then_add:
      return canonical(final + (s_a * s_b) * partial);
    case ScaleOrder::a_then_fma_b:
      return canonical(std::fma(partial * s_a, s_b, final));
    case ScaleOrder::b_then_fma_a:
      return canonical(std::fma(partial * s_b, s_a, final));
    case ScaleOrder::a_then_b_then_add:
      return canonical(final + (partial * s_a) * s_b);
  }
  return final;
}

/// The scales without their second level.
inline InverseScales block_level(InverseScales scales) {
  scales.tensor_scale = 1.0F;
  return scales;
}

/// Looks up one matrix's inverse scales by element, their second level included.
class ScaleLookup {
 public:
  ScaleLookup(const InverseScales& scales, const CodeMatrix& matrix)
      : values_(scales.values),
        tensor_scale_(scales.tensor_scale),
        row_block_(scales.row_block),
        k_block_(scales.k_block == 0 ? matrix.k : scales.k_block),
        columns_(k_block_ == 0 ? 0 : ceil_divide(matrix.k, k_block_)) {}

  [[nodiscard]] bool varies_along_k() const { return !values_.empty() && columns_ > 1; }
  [[nodiscard]] float at(std::int64_t row, std::int64_t k) const {
    if (values_.empty()) return 1.0F;
    return tensor_scale_ *
           values_[static_cast<std::size_t>((row / row_block_) * columns_ + k / k_block_)];
  }
  /// `at` of rows [first, first + out.size()).
  void rows_at(std::int64_t first, std::int64_t k, std::span<float> out) const {
    if (values_.empty()) {
      std::ranges::fill(out, 1.0F);
      return;
    }
    const float* column = values_.data() + k / k_block_;
    std::int64_t tile = first / row_block_;
    std::int64_t left = row_block_ - first % row_block_;
    for (float& scale : out) {
      scale = tensor_scale_ * column[tile * columns_];
      if (--left > 0) continue;
      ++tile;
      left = row_block_;
    }
  }

 private:
  std::span<const float> values_;
  float tensor_scale_;
  std::int64_t row_block_;
  std::int64_t k_block_;
  std::int64_t columns_;
};

/// The side of an operand's scale tiles along K; 0 where its scales do not change there.
inline std::int64_t tile_along_k(const InverseScales& scales, const CodeMatrix& matrix) {
  return ScaleLookup(scales, matrix).varies_along_k() ? scales.k_block : 0;
}

/// Whether either operand has scales.
inline bool scaled(const GemmProblem& p) { return !p.scale_a.empty() || !p.scale_b.empty(); }

/// Whether either operand's scales vary along K: each promoted partial sum then has its own.
inline bool scaled_in_blocks(const GemmProblem& p) {
  return ScaleLookup(p.scale_a, p.a).varies_along_k() ||
         ScaleLookup(p.scale_b, p.b).varies_along_k();
}

/// Whether there are scales, and all of them are of the whole sum.
inline bool scaled_as_a_whole(const GemmProblem& p) { return scaled(p) && !scaled_in_blocks(p); }

}  // namespace fp8lab
