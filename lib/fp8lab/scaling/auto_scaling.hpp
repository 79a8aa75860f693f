#pragma once
// FP8-LM's automatic scaling of gradients before an FP8 all-reduce
// (arXiv 2310.18313, section 2.1). A factor mu multiplies a gradient. It is halved
// when too many elements reach the format's maximum, and grows otherwise.

#include <cstdint>
#include <string_view>

namespace fp8lab {

/// Three versions of the rule.
enum class AutoScaling : std::uint8_t {
  as_paper,    ///< threshold 1e-5 (0.001 %); each clean step multiplies mu by 2^(1/1000)
  as_seed,     ///< as in a tutorial: threshold 1e-3 (0.1 %); mu grows after 1000 clean steps
  as_shipped,  ///< MS-AMP: no mu; casts with s / sqrt(ranks) and divides the inverse by ranks
};
AutoScaling find_auto_scaling(std::string_view name);

/// The effect of a clean step, one without too many elements at the maximum, on mu.
enum class GrowthLaw : std::uint8_t {
  exponential,  ///< multiplies it by 2^(1 / steps_to_double)
  linear,       ///< adds (mu after the last halving, or at the start) / steps_to_double
  doubling,     ///< only the last of each steps_to_double clean steps doubles it
  none,         ///< no effect
};
std::string_view to_string(GrowthLaw law);
/// The law called `name`. Throws `Error` that lists the names.
GrowthLaw find_growth_law(std::string_view name);

struct AutoScalingOptions {
  double threshold = 1e-5;  ///< share of elements at max finite; above it mu is halved
  std::int64_t steps_to_double = 1000;
  std::int64_t clean_steps = 0;  ///< number of the first clean step that counts
  GrowthLaw growth = GrowthLaw::exponential;

  friend bool operator==(const AutoScalingOptions&, const AutoScalingOptions&) = default;
};

/// The options of a version. Throws `Error` for as_shipped, which has no mu.
AutoScalingOptions auto_scaling_options(AutoScaling variant);

/// mu over the steps, in FP64. No version bounds it: without saturation it grows until
/// it is Inf.
class AutoScaler {
 public:
  /// Throws `Error` for a threshold outside [0, 1] or counts below their minimum.
  explicit AutoScaler(AutoScalingOptions options, double mu = 1.0);

  [[nodiscard]] double mu() const { return mu_; }

  /// `saturated_share`: the share of elements at max finite in the tensor that was
  /// scaled with `mu()`, 0 to 1. Throws `Error` outside this range.
  void update(double saturated_share);

  /// The state on which later steps depend, without the options.
  struct State {
    double mu = 1.0;
    double base = 1.0;
    std::int64_t clean = 0;
    std::int64_t counted = 0;
  };
  [[nodiscard]] State state() const { return {mu_, base_, clean_, counted_}; }
  /// Restores a state that `state()` returned. Throws `Error` for a mu that is not positive and
  /// counts below 0.
  void set_state(const State& state);

 private:
  void grow();

  AutoScalingOptions options_;
  double mu_;
  double growth_;
  double base_;               ///< mu after the last halving
  std::int64_t clean_ = 0;    ///< steps since then
  std::int64_t counted_ = 0;  ///< of these, steps that count for growth
};

/// The scaling that MS-AMP ships: the scale for the cast of the gradients of `ranks`
/// ranks, and the factor of the sum of their codes that gives the mean.
struct ShippedScaling {
  float scale = 1.0F;
  float inverse_scale = 1.0F;
};

/// `amax`: the largest magnitude over all ranks. If it is not finite, the scale
/// remains `previous_scale`, the scale of the last step before the division by ranks.
/// Throws `Error` for ranks below 1.
ShippedScaling shipped_scaling(float amax, std::int64_t ranks, float previous_scale = 1.0F);

}  // namespace fp8lab
