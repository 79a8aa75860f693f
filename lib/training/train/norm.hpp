#pragma once
// LayerNorm and RMSNorm over the channels of each token, in the scalar's precision.

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

enum class NormKind : std::uint8_t {
  layer,  ///< y = (x - mean) / sqrt(variance + 1e-5) * gain + bias
  rms,    ///< y = x / sqrt(mean of squares + 1e-5) * gain
};

template <typename T>
class Norm {
 public:
  /// Gain 1 and bias 0. RMSNorm has no bias.
  Norm(const std::string& name, NormKind kind, std::int64_t channels)
      : kind_(kind), gain_(name + ".gain", {channels}), bias_(name + ".bias", {channels}) {
    for (T& g : gain_.value) g = T{1};
  }

  Matrix<T> forward(const Matrix<T>& x, const PassContext& context) {
    normalized_ = Matrix<T>(x.rows, x.columns);
    inverse_deviation_.assign(static_cast<std::size_t>(x.rows), T{0});
    Matrix<T> y(x.rows, x.columns);
    const std::int64_t n = x.columns;
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const T* in = x.row(r);
      const T mean = kind_ == NormKind::rms
                         ? T{0}
                         : lane_sum<T>(n, [&](std::int64_t i) { return in[i]; }) / T(n);
      const T variance =
          lane_sum<T>(n, [&](std::int64_t i) { return (in[i] - mean) * (in[i] - mean); }) / T(n);
      const T inverse = T{1} / std::sqrt(variance + T(1e-5));
      inverse_deviation_[static_cast<std::size_t>(r)] = inverse;
      T* hat = normalized_.row(r);
      T* out = y.row(r);
      const T* gain = gain_.value.data();
      const T* bias = bias_.value.data();
      for (std::int64_t i = 0; i < n; ++i) hat[i] = (in[i] - mean) * inverse;
      for (std::int64_t i = 0; i < n; ++i) out[i] = hat[i] * gain[i] + bias[i];
    }
    return y;
  }

  /// dY to dX; sets the gradients of gain and bias.
  Matrix<T> backward(const Matrix<T>& dy, const PassContext& context) {
    Matrix<T> dx(dy.rows, dy.columns);
    const std::int64_t n = dy.columns;
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      const T* d = dy.row(r);
      const T* hat = normalized_.row(r);
      const T* gain = gain_.value.data();
      const T along_hat =
          lane_sum<T>(n, [&](std::int64_t i) { return d[i] * gain[i] * hat[i]; }) / T(n);
      const T along_mean = kind_ == NormKind::rms ? T{0} : lane_sum<T>(n, [&](std::int64_t i) {
                                                             return d[i] * gain[i];
                                                           }) / T(n);
      const T inverse = inverse_deviation_[static_cast<std::size_t>(r)];
      T* out = dx.row(r);
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = inverse * (d[i] * gain[i] - along_mean - hat[i] * along_hat);
    }
    sum_parameter_gradients(dy);
    return dx;
  }

  /// What trains: gain, and bias for LayerNorm.
  [[nodiscard]] std::vector<Parameter<T>*> parameters() {
    if (kind_ == NormKind::rms) return {&gain_};
    return {&gain_, &bias_};
  }

 private:
  /// Sums over tokens in their order.
  void sum_parameter_gradients(const Matrix<T>& dy) {
    std::vector<T> gain(gain_.value.size());
    std::vector<T> bias(gain_.value.size());
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      const T* d = dy.row(r);
      const T* hat = normalized_.row(r);
      for (std::size_t i = 0; i < gain.size(); ++i) gain[i] += d[i] * hat[i];
      for (std::size_t i = 0; i < bias.size(); ++i) bias[i] += d[i];
    }
    gain_.gradient = std::move(gain);
    bias_.gradient = std::move(bias);
  }

  NormKind kind_;
  Parameter<T> gain_;
  Parameter<T> bias_;  ///< stays 0 for RMSNorm
  Matrix<T> normalized_;
  std::vector<T> inverse_deviation_;
};

}  // namespace fp8lab::train
