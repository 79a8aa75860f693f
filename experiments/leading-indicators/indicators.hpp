#pragma once
// What may show before the loss that a run goes wrong, against a shadow run in
// high precision on the same batches.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/metrics/kill_switch.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {

/// The steps of `variant` up to the first loss that is not finite.
std::vector<StepFigures> record_run(const StudySettings& settings, const Variant& variant,
                                    train::OutlierChannels outliers, std::uint64_t seed);

/// A run's indicators, step by step, and what became of it.
struct WatchedRun {
  std::array<std::vector<double>, 3> values;  ///< by indicator
  std::array<std::optional<std::int64_t>, 3> alarms;
  std::optional<std::int64_t> left;  ///< from here on the loss gap stays above leave_gap, or
                                     ///< the run broke off
};

inline constexpr double kLeaveGap = 0.1;

/// `leave_gap`: nats; beyond it the loss has left.
WatchedRun watch(const KillThresholds& thresholds, const std::vector<StepFigures>& run,
                 const std::vector<StepFigures>& shadow, double leave_gap = kLeaveGap);

}  // namespace fp8lab::experiments
