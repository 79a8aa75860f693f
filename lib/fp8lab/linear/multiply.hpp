#pragma once
// The high-precision matrix product of training: D = A . B^T with one fused
// multiply-add per product, in the order of k. The order is fixed, so that the bits
// depend neither on threads nor on the instruction set.

#include <cstdint>
#include <vector>

#include "fp8lab/core/target.hpp"

namespace fp8lab::train {

/// A view of an operand [rows, k]. Element (row, k) is at row * row_stride + k * k_stride.
template <typename T>
struct Operand {
  const T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 1;

  /// The operand from row `row` on.
  [[nodiscard]] Operand from_row(std::int64_t row) const {
    return {data + row * row_stride, row_stride, k_stride};
  }
};

/// A row-major matrix that owns its values.
template <typename T>
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}

  [[nodiscard]] T* row(std::int64_t r) { return values.data() + r * columns; }
  [[nodiscard]] const T* row(std::int64_t r) const { return values.data() + r * columns; }
  /// As an operand [rows, columns].
  [[nodiscard]] Operand<T> view() const { return {values.data(), columns, 1}; }
  /// As an operand [columns, rows]: the transpose, without a copy.
  [[nodiscard]] Operand<T> transposed_view() const { return {values.data(), 1, columns}; }
};

/// The destination of a product: row-major with a row stride, in elements.
template <typename T>
struct Output {
  T* data = nullptr;
  std::int64_t row_stride = 0;
};

struct ProductSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// d[i, j] = fma(a[i, k-1], b[j, k-1], ... fma(a[i, 0], b[j, 0], +0)): binary32,
/// nearest even. `threads` >= 1.
void multiply(Operand<float> a, Operand<float> b, Output<float> d, ProductSize size, int threads);

/// The same on a given target. `scalar` is the specification.
void multiply_with_target(Operand<float> a, Operand<float> b, Output<float> d, ProductSize size,
                          int threads, Target target);

/// The same in binary64, for gradient checks, with plain loops on one thread.
void multiply(Operand<double> a, Operand<double> b, Output<double> d, ProductSize size,
              int threads);

}  // namespace fp8lab::train
