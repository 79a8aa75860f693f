#pragma once
// Scales from the past: TransformerEngine's delayed scaling and MS-AMP's
// windows. Both give the scale of the next use; both are *read* in the sources.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class AmaxAlgorithm : std::uint8_t {
  max,          ///< the largest amax of the history
  most_recent,  ///< the amax of the last step
};
std::string_view to_string(AmaxAlgorithm algorithm);
AmaxAlgorithm find_amax_algorithm(std::string_view name);

/// What an update with amax 0 (an unused or all-zero tensor) does to the history.
enum class ZeroAmax : std::uint8_t {
  keep_history,  ///< nothing moves: TransformerEngine's modules (its bulk update)
  roll,          ///< the zero enters the history: its single-tensor update
};
std::string_view to_string(ZeroAmax zero_amax);
/// Throws `Error`.
ZeroAmax find_zero_amax(std::string_view name);

struct DelayedOptions {
  std::int64_t history = 1024;
  double margin = 0.0;  ///< the scale is 2^margin smaller
  AmaxAlgorithm algorithm = AmaxAlgorithm::max;
  ZeroAmax zero_amax = ZeroAmax::keep_history;
};

/// TransformerEngine's delayed scaling of one tensor. A step casts with
/// `scale()`, calls `record(amax)` (any number of times) and then `update()`.
class DelayedScaling {
 public:
  /// Throws `Error` for a history below 1 or a margin that is not finite.
  explicit DelayedScaling(FormatId format, DelayedOptions options = {});

  /// Multiplies into FP8; 1 before the first update.
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] float inverse_scale() const { return 1.0F / scale_; }

  /// Slot 0 becomes the larger of itself and `amax`; NaN is ignored (fmaxf).
  void record(float amax);

  /// Scale = max_finite * 2^-margin / amax over all slots (or slot 0), kept
  /// where that amax is 0 or not finite, FLT_MAX where the quotient is Inf; then
  /// the slots move by one, the oldest is dropped and slot 0 becomes 0.
  /// An Inf in the history therefore freezes the scale until it leaves.
  void update();

  /// Slot 0 first; then the oldest to the newest, as TransformerEngine stores them.
  [[nodiscard]] std::vector<float> history() const;

  /// Goes on from a scale and a history as `history()` gives it. Throws `Error` for a history of
  /// another length.
  void restore(float scale, std::span<const float> history);

 private:
  DelayedOptions options_;
  float scaled_max_;
  float scale_ = 1.0F;
  float current_ = 0.0F;
  std::vector<float> past_;  ///< the other slots, a ring
  std::size_t oldest_ = 0;
};

/// MS-AMP's scaling meta of one tensor: just-in-time scaling while fewer than
/// `window` updates have passed (always for a window of 1), then the largest
/// amax of the window. A step casts, then `update()`.
class MsAmpScaling {
 public:
  /// Throws `Error` for a window below 1.
  MsAmpScaling(FormatId format, std::int64_t window);

  /// Whether the next cast needs the amax of its own tensor first.
  [[nodiscard]] bool is_just_in_time() const;

  /// Takes the amax of a tensor that is about to be cast (NaN where it holds
  /// one) and returns the scale to cast it with. Slot 0 is overwritten
  /// (*assumed* for casts after the warm-up, where the amax comes from the cast).
  float scale_for(float amax);

  [[nodiscard]] float scale() const { return scale_; }

  /// Clean updates in a row, no more than `window`: beyond it their number says nothing.
  [[nodiscard]] std::int64_t updates() const;

  /// Slot 0 first, then the newest to the oldest.
  [[nodiscard]] std::span<const float> window() const { return window_; }

  /// Goes on from what the three functions above gave. Throws `Error` for a window of another
  /// length or a number of updates that `updates()` does not give.
  void restore(float scale, std::int64_t updates, std::span<const float> window);

  /// The optimizer step: a new scale from the window unless slot 0 is Inf or
  /// NaN, which also restarts the warm-up; then the slots rotate by one.
  void update();

 private:
  FormatId format_;
  float scale_ = 1.0F;
  std::int64_t updates_ = 0;
  std::vector<float> window_;
};

}  // namespace fp8lab
