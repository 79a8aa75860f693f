#pragma once
// Decides from three figures of each step that a training run departs from a run in high precision
// on the same batches, before its loss has left. What ends then is the caller's choice.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fp8lab {

/// One step of a run.
struct StepFigures {
  double loss = 0.0;           ///< nats a token
  double gradient_amax = 0.0;  ///< of the blocks' weight gradients, before clipping
  double second_moment = 0.0;  ///< mean of Adam's v over the blocks' weights
};

enum class Indicator : std::uint8_t { gradient_amax, second_moment, loss_gap };
inline constexpr std::array<Indicator, 3> kIndicators{
    Indicator::gradient_amax, Indicator::second_moment, Indicator::loss_gap};
std::string_view to_string(Indicator indicator);

/// The defaults are *chosen*, but for 0.01 nats, which is the naive-FP8 tutorial's.
struct KillThresholds {
  double amax_ratio = 2.0;    ///< alarm outside of [1 / ratio, ratio]
  double moment_ratio = 2.0;  ///< the same
  double loss_gap = 0.01;     ///< nats above the shadow
  std::int64_t window = 10;   ///< steps: ratios are their geometric mean, gaps their mean
  std::int64_t patience = 5;  ///< steps in a row beyond a threshold before it counts
};

/// What to do at an alarm.
enum class KillAction : std::uint8_t {
  stop,       ///< end the run
  roll_back,  ///< return to a state from before the alarm's window, without the batches since
  bf16,       ///< the same, and continue in BF16
};
std::string_view to_string(KillAction action);
/// The action called `name`: stop, roll-back or bf16. Throws `Error` that names `argument`.
KillAction find_kill_action(std::string_view name, std::string_view argument);

/// Watches a run beside its shadow, one step a call. Steps are counted from 0.
class KillSwitch {
 public:
  /// Throws `Error` for a ratio not above 1, a negative gap, a window or patience below 1.
  explicit KillSwitch(const KillThresholds& thresholds);

  void observe(const StepFigures& run, const StepFigures& shadow);

  /// Figures over the window that ends with the last step; a figure that is not
  /// finite, or a ratio with a zero, is infinite.
  [[nodiscard]] double value(Indicator indicator) const;
  /// The step at which the indicator first raised an alarm.
  [[nodiscard]] std::optional<std::int64_t> alarm(Indicator indicator) const;
  /// The first alarm of any: where the switch ends the run.
  [[nodiscard]] std::optional<std::int64_t> tripped() const;
  /// The indicator of that alarm, the first in the order of `kIndicators` if there are several.
  [[nodiscard]] std::optional<Indicator> cause() const;

 private:
  KillThresholds thresholds_;
  std::array<std::vector<double>, 3> history_;  ///< log ratios and gaps, step by step
  std::array<std::int64_t, 3> beyond_{};        ///< steps in a row
  std::array<std::optional<std::int64_t>, 3> alarms_;
};

}  // namespace fp8lab
