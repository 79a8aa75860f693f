#pragma once
// AdamW with a separate storage format for each state ("precision-decoupled":
// FP8-LM, MS-AMP), including FP32 AdamW. Specified in
// docs/specification/optimizer.md.
//
// A step works element by element in binary32, with one rounding to nearest even per
// operation, left to right, without contraction. First, once per step, in binary64:
//   b1 = b1_previous * beta1, b2 = b2_previous * beta2   (1 before the first step)
//   step_size = f32(lr / (1 - b1)),  root = f32(sqrt(1 - b2))    (both 1 - 0 without
//                                                                  bias correction)
//   keep = f32(1 - lr * weight_decay)                  (decoupled decay, else 1)
// Then, with m, v, w loaded from their formats:
//   g = g + weight_decay * w                           (L2 decay only)
//   w = w * keep
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * (g * g)
//   w = w - step_size * (m / (sqrt(v) / root + eps))
// The update uses the new m and v before they are stored. Then all three are
// stored with scales from their new largest magnitudes. *Read* in MS-AMP's fused
// kernel, which leaves contraction to its compiler and computes (beta * code) *
// inverse_scale, which is the same for a power of two.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "training/optim/state_tensor.hpp"

namespace fp8lab {

enum class WeightDecay : std::uint8_t {
  decoupled,  ///< AdamW: weights shrink by lr * weight_decay
  l2,         ///< Adam: weight_decay * w joins the gradient
};

struct AdamWOptions {
  StateFormat master{};    ///< the weights that are updated
  StateFormat gradient{};  ///< f32: gradients are used directly; else stored first
  StateFormat m{};         ///< first moment
  StateFormat v{};         ///< second moment
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  double weight_decay = 0.1;
  WeightDecay decay = WeightDecay::decoupled;
  bool bias_correction = true;
  int threads = 0;  ///< 0: all; results do not depend on it
};

/// The initial weights of a tensor.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  ///< row-major, copied
  bool decays = true;             ///< false for norms and biases
};

/// Bytes of the existing buffers; scales are counted separately.
struct OptimizerMemory {
  std::size_t parameters = 0;  ///< elements
  std::size_t master = 0;
  std::size_t gradient = 0;  ///< stored gradients, or those of the last step
  std::size_t m = 0;
  std::size_t v = 0;
  std::size_t scales = 0;  ///< of all states

  [[nodiscard]] std::size_t total() const { return master + gradient + m + v + scales; }
  [[nodiscard]] double bytes_per_parameter() const;
};

class AdamW {
 public:
  /// m and v start at zero, master weights at the given values in their format.
  /// Throws `Error` for options outside their range, a duplicate or empty name,
  /// or values that disagree with their shape.
  AdamW(const AdamWOptions& options, std::span<const Parameter> parameters);

  /// Runs one step; gradients[i] belongs to parameter i. NaN and Inf propagate through
  /// arithmetic and casts; no step is skipped. Throws `Error` for another number of
  /// gradients or elements, and for an lr that is not finite.
  void step(std::span<const std::span<const float>> gradients, double lr);

  [[nodiscard]] std::int64_t steps() const { return steps_; }

  /// The values that the next step reads.
  void copy_weights(std::size_t i, std::span<float> out) const { states_[i].master.load(0, out); }
  void copy_m(std::size_t i, std::span<float> out) const { states_[i].m.load(0, out); }
  void copy_v(std::size_t i, std::span<float> out) const { states_[i].v.load(0, out); }

  [[nodiscard]] OptimizerMemory memory() const;

  /// The complete state without options: NAME.master, NAME.m, NAME.v with their
  /// scales, and optimizer.steps. These are views of this object, valid until it
  /// changes; `write_safetensors` accepts them.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// Restores `state()` of an optimizer with the same options and parameters, bit for
  /// bit. Throws `Error` for tensors that are missing or differ; the state is then
  /// undefined.
  void restore(std::span<const NamedTensor> tensors);

 private:
  struct State {
    std::string name;
    std::vector<std::int64_t> shape;
    bool decays = true;
    StateTensor master;
    StateTensor gradient;  ///< empty for f32
    StateTensor m;
    StateTensor v;
  };
  /// A range of one parameter; all parameters' ranges are the work of a step.
  struct Chunk {
    std::size_t parameter = 0;
    std::size_t begin = 0;
    std::size_t count = 0;
  };
  struct Constants;
  struct Buffers;

  void check(std::span<const std::span<const float>> gradients, double lr) const;
  void advance();
  [[nodiscard]] bool stores_gradients() const;
  [[nodiscard]] int threads() const;  ///< no more than there are chunks
  [[nodiscard]] Constants constants(double lr) const;
  void compute(const Chunk& chunk, const Constants& c, std::span<const float> gradient,
               Buffers& buffers) const;
  void find_scales(std::span<const std::span<const float>> gradients, const Constants& c);

  AdamWOptions options_;
  std::vector<State> states_;
  std::vector<Chunk> chunks_;
  std::int64_t steps_ = 0;
  double power1_ = 1.0;  ///< beta1^steps
  double power2_ = 1.0;
  std::size_t given_gradient_bytes_ = 0;
};

}  // namespace fp8lab
