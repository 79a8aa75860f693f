#pragma once
// AdamW in FP32 over named tensors.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/io/safetensors.hpp"

namespace fp8lab::train {

struct OptimizerOptions {
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  double weight_decay = 0.1;  ///< decoupled: weights shrink by lr * weight_decay
};

/// A tensor of weights at the start.
struct OptimizedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  ///< row-major, copied
  bool decays = true;             ///< false for norms and embeddings
};

/// One step, element by element in binary32, no contraction:
///   w = w * (1 - lr * weight_decay)
///   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * (g * g)
///   w = w - lr / (1 - beta1^t) * (m / (sqrt(v) / sqrt(1 - beta2^t) + eps))
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, std::span<const OptimizedTensor> tensors);

  /// gradients[i] belongs to tensor i. Throws `Error` for a size that differs.
  void step(std::span<const std::span<const float>> gradients, double lr, int threads);

  void copy_weights(std::size_t i, std::span<float> out) const;

  /// Everything that the next steps depend on, options apart: views into this object.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// Throws `Error` for what is missing or differs in shape.
  void restore(std::span<const NamedTensor> tensors);

 private:
  struct State {
    std::string name;
    std::vector<std::int64_t> shape;
    bool decays = true;
    std::vector<float> w;
    std::vector<float> m;
    std::vector<float> v;
  };

  OptimizerOptions options_;
  std::vector<State> states_;
  std::int64_t steps_ = 0;
};

}  // namespace fp8lab::train
