#pragma once
// Softmax with cross-entropy over a vocabulary, in the scalar's precision.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

template <typename T>
class CrossEntropy {
 public:
  /// Mean over tokens of -log softmax(logits)[target], in nats, summed in FP64 in
  /// the order of tokens. Throws `Error` for a target outside the vocabulary.
  double forward(Matrix<T> logits, std::span<const std::int32_t> targets,
                 const PassContext& context) {
    require(static_cast<std::int64_t>(targets.size()) == logits.rows, "targets",
            std::to_string(logits.rows) + " tokens", std::to_string(targets.size()));
    for (const std::int32_t t : targets)
      require(t >= 0 && t < logits.columns, "targets",
              "tokens of a vocabulary of " + std::to_string(logits.columns), std::to_string(t));
    probabilities_ = std::move(logits);
    targets_.assign(targets.begin(), targets.end());
    std::vector<double> losses(targets.size());
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < probabilities_.rows; ++r) {
      const auto token = static_cast<std::size_t>(r);
      losses[token] = to_probabilities(probabilities_.row(r), targets_[token]);
    }
    double sum = 0.0;
    for (const double loss : losses) sum += loss;
    return sum / static_cast<double>(losses.size());
  }

  /// `scale` times the gradient of the mean loss, [tokens, vocabulary].
  Matrix<T> backward(T scale, const PassContext& context) {
    Matrix<T> d = probabilities_;
    const T factor = scale / static_cast<T>(d.rows);
#pragma omp parallel for num_threads(context.threads) schedule(static)
    for (std::int64_t r = 0; r < d.rows; ++r) {
      T* row = d.row(r);
      row[targets_[static_cast<std::size_t>(r)]] -= T{1};
      for (std::int64_t i = 0; i < d.columns; ++i) row[i] *= factor;
    }
    return d;
  }

 private:
  double to_probabilities(T* row, std::int32_t target) const {
    const std::int64_t n = probabilities_.columns;
    const T largest = *std::max_element(row, row + n);
    const double at_target = static_cast<double>(row[target] - largest);
    for (std::int64_t i = 0; i < n; ++i) row[i] = std::exp(row[i] - largest);
    const T sum = lane_sum<T>(n, [&](std::int64_t i) { return row[i]; });
    for (std::int64_t i = 0; i < n; ++i) row[i] /= sum;
    return std::log(static_cast<double>(sum)) - at_target;
  }

  Matrix<T> probabilities_;
  std::vector<std::int32_t> targets_;
};

}  // namespace fp8lab::train
