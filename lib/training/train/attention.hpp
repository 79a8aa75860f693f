#pragma once
// Causal multi-head attention between the projections, in the scalar's
// precision: every recipe of the library keeps it out of FP8.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

template <typename T>
class CausalAttention {
 public:
  /// Throws `Error` unless `heads` divides `width`.
  CausalAttention(std::int64_t width, std::int64_t heads) : width_(width), heads_(heads) {
    require(heads > 0 && width % heads == 0, "heads", "a divisor of " + std::to_string(width),
            std::to_string(heads));
  }

  /// qkv [sequences * length, 3 width], queries, keys, values beside each other,
  /// to [sequences * length, width]. A token sees itself and those before it.
  Matrix<T> forward(Matrix<T> qkv, std::int64_t length, const PassContext& context) {
    qkv_ = std::move(qkv);
    length_ = length;
    const std::int64_t pairs = qkv_.rows / length * heads_;
    weights_ = Matrix<T>(pairs * length, length);
    Matrix<T> out(qkv_.rows, width_);
    const std::int64_t d = head_width();
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      T* p = weights_.row(pair * length_);
      multiply(query(pair), key(pair), {p, length_}, {length_, length_, d}, 1);
      for (std::int64_t i = 0; i < length_; ++i) softmax_row(p + i * length_, i + 1);
      multiply(Operand<T>{p, length_, 1}, turned(value(pair)), {out_at(out, pair), width_},
               {length_, d, length_}, 1);
    }
    return out;
  }

  /// dOut [tokens, width] to dQKV [tokens, 3 width].
  Matrix<T> backward(const Matrix<T>& d_out, const PassContext& context) {
    Matrix<T> d_qkv(qkv_.rows, qkv_.columns);
    const std::int64_t pairs = qkv_.rows / length_ * heads_;
    const std::int64_t d = head_width();
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const T* p = weights_.row(pair * length_);
      const Operand<T> weights{p, length_, 1};
      const Operand<T> d_head{out_at(d_out, pair), width_, 1};
      T* d_query = d_qkv.row(pair / heads_ * length_) + pair % heads_ * d;
      const std::int64_t stride = d_qkv.columns;
      Matrix<T> d_scores(length_, length_);
      multiply(d_head, value(pair), {d_scores.values.data(), length_}, {length_, length_, d}, 1);
      for (std::int64_t i = 0; i < length_; ++i)
        softmax_backward_row(p + i * length_, i + 1, d_scores.row(i));
      multiply(d_scores.view(), turned(key(pair)), {d_query, stride}, {length_, d, length_}, 1);
      multiply(d_scores.transposed_view(), turned(query(pair)), {d_query + width_, stride},
               {length_, d, length_}, 1);
      multiply(turned(weights), turned(d_head), {d_query + 2 * width_, stride},
               {length_, d, length_}, 1);
    }
    return d_qkv;
  }

 private:
  [[nodiscard]] std::int64_t head_width() const { return width_ / heads_; }
  [[nodiscard]] T scale() const { return T{1} / std::sqrt(static_cast<T>(head_width())); }

  /// The operand [length, head width] of a (sequence, head) pair in part 0, 1 or 2 of qkv.
  [[nodiscard]] Operand<T> part(std::int64_t pair, std::int64_t which) const {
    return {qkv_.row(pair / heads_ * length_) + which * width_ + pair % heads_ * head_width(),
            qkv_.columns, 1};
  }
  [[nodiscard]] Operand<T> query(std::int64_t pair) const { return part(pair, 0); }
  [[nodiscard]] Operand<T> key(std::int64_t pair) const { return part(pair, 1); }
  [[nodiscard]] Operand<T> value(std::int64_t pair) const { return part(pair, 2); }
  static Operand<T> turned(Operand<T> x) { return {x.data, x.k_stride, x.row_stride}; }

  template <typename M>
  auto* out_at(M& out, std::int64_t pair) const {
    return out.row(pair / heads_ * length_) + pair % heads_ * head_width();
  }

  /// The first `seen` scores of a row to weights, the others to 0.
  void softmax_row(T* row, std::int64_t seen) const {
    const T largest = *std::max_element(row, row + seen);
    const T factor = scale();
    for (std::int64_t j = 0; j < seen; ++j) row[j] = std::exp((row[j] - largest) * factor);
    const T inverse = T{1} / lane_sum<T>(seen, [&](std::int64_t j) { return row[j]; });
    for (std::int64_t j = 0; j < seen; ++j) row[j] *= inverse;
    std::fill(row + seen, row + length_, T{0});
  }

  /// Gradients of weights to gradients of scores, in place.
  void softmax_backward_row(const T* weights, std::int64_t seen, T* d) const {
    const T mean = lane_sum<T>(seen, [&](std::int64_t j) { return weights[j] * d[j]; });
    for (std::int64_t j = 0; j < seen; ++j) d[j] = weights[j] * (d[j] - mean) * scale();
    std::fill(d + seen, d + length_, T{0});
  }

  std::int64_t width_;
  std::int64_t heads_;
  std::int64_t length_ = 0;
  Matrix<T> qkv_;
  Matrix<T> weights_;  ///< [sequences * heads * length, length]
};

}  // namespace fp8lab::train
