#pragma once
// The nonlinearities of a feed-forward layer, in the scalar's precision.

#include <cmath>
#include <cstdint>
#include <numbers>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

enum class ActivationKind : std::uint8_t {
  gelu,    ///< x Phi(x), with the exact normal distribution
  swiglu,  ///< silu(gate) * up; the input holds gate and up beside each other
};

template <typename T>
class Activation {
 public:
  explicit Activation(ActivationKind kind) : kind_(kind) {}

  /// Columns of the input for each column of the output.
  [[nodiscard]] std::int64_t inputs() const { return kind_ == ActivationKind::swiglu ? 2 : 1; }

  /// x [tokens, inputs() * hidden] to [tokens, hidden].
  Matrix<T> forward(Matrix<T> x, const PassContext& context) {
    x_ = std::move(x);
    Matrix<T> y(x_.rows, x_.columns / inputs());
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < y.rows; ++r) {
      const T* in = x_.row(r);
      T* out = y.row(r);
      for (std::int64_t i = 0; i < y.columns; ++i)
        out[i] = kind_ == ActivationKind::gelu ? in[i] * normal_distribution(in[i])
                                               : in[i] * sigmoid(in[i]) * in[y.columns + i];
    }
    return y;
  }

  Matrix<T> backward(const Matrix<T>& dy, const PassContext& context) {
    Matrix<T> dx(x_.rows, x_.columns);
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      const T* in = x_.row(r);
      const T* d = dy.row(r);
      T* out = dx.row(r);
      for (std::int64_t i = 0; i < dy.columns; ++i) {
        if (kind_ == ActivationKind::gelu) {
          out[i] = d[i] * (normal_distribution(in[i]) + in[i] * normal_density(in[i]));
          continue;
        }
        const T s = sigmoid(in[i]);
        out[i] = d[i] * in[dy.columns + i] * s * (T{1} + in[i] * (T{1} - s));
        out[dy.columns + i] = d[i] * in[i] * s;
      }
    }
    return dx;
  }

 private:
  static T sigmoid(T x) { return T{1} / (T{1} + std::exp(-x)); }
  static T normal_distribution(T x) {
    return T(0.5) * (T{1} + std::erf(x * (std::numbers::sqrt2_v<T> / T{2})));
  }
  static T normal_density(T x) {
    return std::exp(T(-0.5) * x * x) * (std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>);
  }

  ActivationKind kind_;
  Matrix<T> x_;
};

}  // namespace fp8lab::train
