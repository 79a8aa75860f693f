#pragma once
// What may show before the loss that a run goes wrong, against a shadow run in
// high precision on the same batches, and a switch that ends the run.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "train/study.hpp"

namespace fp8lab::experiments {

/// One step of a run.
struct StepFigures {
  double loss = 0.0;           ///< nats a token
  double gradient_amax = 0.0;  ///< of the blocks' weight gradients, before clipping
  double second_moment = 0.0;  ///< mean of Adam's v over the blocks' weights
};

/// The steps of `variant` up to the first loss that is not finite.
std::vector<StepFigures> record_run(const StudySettings& settings, const Variant& variant,
                                    train::OutlierChannels outliers, std::uint64_t seed);

enum class Indicator : std::uint8_t { gradient_amax, second_moment, loss_gap };
inline constexpr std::array<Indicator, 3> kIndicators{
    Indicator::gradient_amax, Indicator::second_moment, Indicator::loss_gap};
std::string_view to_string(Indicator indicator);

struct Thresholds {
  double amax_ratio = 2.0;    ///< alarm outside of [1 / ratio, ratio]
  double moment_ratio = 2.0;  ///< the same
  double loss_gap = 0.01;     ///< nats above the shadow
  std::int64_t window = 10;   ///< steps: ratios are their geometric mean, gaps their mean
  std::int64_t patience = 5;  ///< steps in a row beyond a threshold before it counts
  double leave_gap = 0.1;     ///< nats: beyond this the loss has left
};

/// Watches a run beside its shadow, one step a call.
class KillSwitch {
 public:
  /// Throws `Error` for a ratio not above 1, a negative gap, a window or patience below 1.
  explicit KillSwitch(const Thresholds& thresholds);

  void observe(const StepFigures& run, const StepFigures& shadow);

  /// Figures over the window that ends with the last step; a figure that is not
  /// finite, or a ratio with a zero, is infinite.
  [[nodiscard]] double value(Indicator indicator) const;
  /// The step at which the indicator first raised an alarm.
  [[nodiscard]] std::optional<std::int64_t> alarm(Indicator indicator) const;
  /// The first alarm of any: where the switch ends the run.
  [[nodiscard]] std::optional<std::int64_t> tripped() const;

 private:
  Thresholds thresholds_;
  std::array<std::vector<double>, 3> history_;  ///< log ratios and gaps, step by step
  std::array<std::int64_t, 3> beyond_{};        ///< steps in a row
  std::array<std::optional<std::int64_t>, 3> alarms_;
};

/// A run's indicators, step by step, and what became of it.
struct WatchedRun {
  std::array<std::vector<double>, 3> values;  ///< by indicator
  std::array<std::optional<std::int64_t>, 3> alarms;
  std::optional<std::int64_t> left;  ///< from here on the loss gap stays above leave_gap, or
                                     ///< the run broke off
};

WatchedRun watch(const Thresholds& thresholds, const std::vector<StepFigures>& run,
                 const std::vector<StepFigures>& shadow);

}  // namespace fp8lab::experiments
