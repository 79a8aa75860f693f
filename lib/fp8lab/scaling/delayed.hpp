#pragma once
// Scales from earlier tensors: delayed scaling, of TransformerEngine and of Flax, and MS-AMP's
// windows. All compute the scale for the next use. All were *read* in the sources; Flax's is
// compared with the package.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab {

enum class AmaxAlgorithm : std::uint8_t {
  max,          ///< the largest amax of the history
  most_recent,  ///< the amax of the last step
};
std::string_view to_string(AmaxAlgorithm algorithm);
AmaxAlgorithm find_amax_algorithm(std::string_view name);

/// The effect of an update with amax 0 (an unused tensor, or one of zeros) on the history.
enum class ZeroAmax : std::uint8_t {
  keep_history,  ///< no change: TransformerEngine's modules (its bulk update)
  roll,          ///< the zero enters the history: its single-tensor update
};
std::string_view to_string(ZeroAmax zero_amax);
/// The value called `name`. Throws `Error`.
ZeroAmax find_zero_amax(std::string_view name);

struct DelayedOptions {
  std::int64_t history = 1024;
  double margin = 0.0;  ///< the scale is 2^margin smaller
  AmaxAlgorithm algorithm = AmaxAlgorithm::max;
  ZeroAmax zero_amax = ZeroAmax::keep_history;
};

/// Delayed scaling of one tensor, as TransformerEngine has it (rule te) or Flax (flax, flax_bf16).
/// In each step, cast with `scale()`, call `record(amax)` any number of times, and then `update()`.
class DelayedScaling {
 public:
  /// Throws `Error` for a history below 1, a margin that is not finite, or another rule.
  explicit DelayedScaling(FormatId format, DelayedOptions options = {},
                          ScaleRule rule = ScaleRule::te);

  /// The factor of values before the cast; 1 before the first update.
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] float inverse_scale() const { return 1.0F / scale_; }

  /// Slot 0 becomes the larger of itself and `amax`. NaN is ignored (fmaxf); in Flax it does what
  /// Inf does.
  void record(float amax);

  /// Sets the scale to max_finite * 2^-margin / amax, where amax is that of all slots
  /// or of slot 0. The scale does not change if amax is 0 or not finite, and is FLT_MAX
  /// if the quotient is Inf. Then the slots move by one: the oldest is dropped and slot
  /// 0 becomes 0. So an Inf in the history freezes the scale until it is dropped. Flax keeps the
  /// reciprocal of the scale: a quotient of Inf stays, and a scale that does not change becomes 1 /
  /// (1 / scale).
  void update();

  /// Slot 0, then the oldest to the newest slot, as TransformerEngine stores them.
  [[nodiscard]] std::vector<float> history() const;

  /// Restores a scale and a history in the order of `history()`. Throws `Error` for a history of
  /// another length.
  void restore(float scale, std::span<const float> history);

 private:
  DelayedOptions options_;
  bool is_flax_;
  float scaled_max_;
  float scale_ = 1.0F;
  float current_ = 0.0F;
  std::vector<float> past_;  ///< the other slots, a ring
  std::size_t oldest_ = 0;
};

/// MS-AMP's scaling meta of one tensor: just-in-time scaling for fewer than
/// `window` updates (always for a window of 1), then scaling by the largest
/// amax of the window. In each step, cast, then call `update()`.
class MsAmpScaling {
 public:
  /// Throws `Error` for a window below 1.
  MsAmpScaling(FormatId format, std::int64_t window);

  /// Whether the next cast needs the amax of its tensor first.
  [[nodiscard]] bool is_just_in_time() const;

  /// Takes the amax of the tensor to cast (NaN if it contains one) and returns the
  /// scale for its cast. Overwrites slot 0 (*assumed* for casts after the warm-up, in
  /// which the cast computes the amax).
  float scale_for(float amax);

  [[nodiscard]] float scale() const { return scale_; }

  /// Consecutive updates without NaN or Inf, at most `window`: more have no effect.
  [[nodiscard]] std::int64_t updates() const;

  /// Slot 0 first, then the newest to the oldest.
  [[nodiscard]] std::span<const float> window() const { return window_; }

  /// Restores the values of the three functions above. Throws `Error` for a window of another
  /// length or a number of updates outside the range of `updates()`.
  void restore(float scale, std::int64_t updates, std::span<const float> window);

  /// Called at the optimizer step. Computes a new scale from the window, unless slot 0
  /// is Inf or NaN, which restarts the warm-up. Then the slots rotate by one.
  void update();

 private:
  FormatId format_;
  float scale_ = 1.0F;
  std::int64_t updates_ = 0;
  std::vector<float> window_;
};

}  // namespace fp8lab
