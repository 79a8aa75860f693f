#pragma once
// One matrix product as the device kernels take it, and the FP32 arithmetic
// around the tensor core in the order that fp8lab::GemmProblem documents.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"
#include "host_device.hpp"

namespace fp8lab::cuda {

/// Inverse scales of one operand; null means 1 everywhere.
struct ScaleArguments {
  const float* values = nullptr;
  int row_block = 1;
  int k_block = 1;
  int columns = 1;

  FP8LAB_HD float at(int row, int k) const {
    return values == nullptr ? 1.0F : values[(row / row_block) * columns + k / k_block];
  }
};

/// Device pointers and shapes. Rows of A and B are padded with zeros to
/// kPaddedRows, their K to kPaddedBytes; c and d are [m, n].
struct GemmArguments {
  const std::uint8_t* a = nullptr;
  const std::uint8_t* b = nullptr;
  const float* c = nullptr;
  float* d = nullptr;
  int m = 0;
  int n = 0;
  int k = 0;
  int row_bytes = 0;
  int promotion_interval = 0;
  ScaleArguments scale_a;
  ScaleArguments scale_b;
  ScaleOrder order = ScaleOrder::product_then_fma;
  bool scaled_along_k = false;  ///< every partial sum is scaled
  bool scaled_at_end = false;   ///< the whole sum is scaled, and c added then

  FP8LAB_HD float c_at(int row, int column) const {
    return c == nullptr ? 0.0F : c[static_cast<std::ptrdiff_t>(row) * n + column];
  }
};

inline constexpr int kPaddedRows = 128;
inline constexpr int kPaddedBytes = 128;

FP8LAB_HD inline float canonical_nan(float x) { return x != x ? float_of(0x7fffffffu) : x; }

FP8LAB_HD inline float fma_nearest(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// final + s_a * s_b * partial in the given order (fp8lab::scale_into).
FP8LAB_HD inline float scale_partial(ScaleOrder order, float partial, float s_a, float s_b,
                                     float final) {
  switch (order) {
    case ScaleOrder::product_then_fma:
      return canonical_nan(fma_nearest(s_a * s_b, partial, final));
    case ScaleOrder::product_then_add:
      return canonical_nan(final + (s_a * s_b) * partial);
    case ScaleOrder::a_then_fma_b:
      return canonical_nan(fma_nearest(partial * s_a, s_b, final));
    case ScaleOrder::b_then_fma_a:
      return canonical_nan(fma_nearest(partial * s_b, s_a, final));
    case ScaleOrder::a_then_b_then_add:
      return canonical_nan(final + (partial * s_a) * s_b);
  }
  return final;
}

/// A partial sum that ended before term k_end joins the FP32 `final`.
FP8LAB_HD inline float promote(const GemmArguments& g, float partial, float s_a, float s_b,
                               float final) {
  return g.scaled_along_k ? scale_partial(g.order, partial, s_a, s_b, final)
                          : canonical_nan(final + partial);
}

/// What the outputs start from, and what happens to the whole sum.
FP8LAB_HD inline float start_value(const GemmArguments& g, int row, int column) {
  return g.scaled_at_end ? 0.0F : g.c_at(row, column);
}
FP8LAB_HD inline float finish(const GemmArguments& g, float sum, int row, int column) {
  if (!g.scaled_at_end) return canonical_nan(sum);
  return scale_partial(g.order, sum, g.scale_a.at(row, 0), g.scale_b.at(column, 0),
                       g.c_at(row, column));
}

/// The rows of `matrix` as bytes, K padded to `row_bytes`, rows to a multiple
/// of kPaddedRows, all with +0.
std::vector<std::uint8_t> padded_rows(const CodeMatrix& matrix, int row_bytes);

/// Bytes of a padded row.
int padded_row_bytes(const CodeMatrix& matrix);

}  // namespace fp8lab::cuda
