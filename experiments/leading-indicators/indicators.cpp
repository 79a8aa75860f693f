#include "leading-indicators/indicators.hpp"

#include <algorithm>
#include <cmath>

#include "training/train/shadowed_trainer.hpp"

namespace fp8lab::experiments {

std::vector<StepFigures> record_run(const StudySettings& settings, const Variant& variant,
                                    train::OutlierChannels outliers, std::uint64_t seed) {
  train::Trainer trainer(trainer_options(settings, variant, outliers, seed),
                         training_data(settings, seed));
  std::vector<StepFigures> steps;
  while (trainer.steps_done() < settings.schedule.steps) {
    const train::MeasuredStep step = train::measured_step(trainer, pass_context(settings));
    if (!std::isfinite(step.figures.loss)) break;
    steps.push_back(step.figures);
  }
  return steps;
}

WatchedRun watch(const KillThresholds& thresholds, const std::vector<StepFigures>& run,
                 const std::vector<StepFigures>& shadow, double leave_gap) {
  KillSwitch kill_switch(thresholds);
  WatchedRun watched;
  const std::size_t steps = std::min(run.size(), shadow.size());
  for (std::size_t step = 0; step < steps; ++step) {
    kill_switch.observe(run[step], shadow[step]);
    for (const Indicator indicator : kIndicators)
      watched.values[static_cast<std::size_t>(indicator)].push_back(kill_switch.value(indicator));
    const bool away =
        watched.values[static_cast<std::size_t>(Indicator::loss_gap)].back() > leave_gap &&
        static_cast<std::int64_t>(step) + 1 >= thresholds.window;
    if (!away) watched.left.reset();
    if (away && !watched.left) watched.left = static_cast<std::int64_t>(step);
  }
  if (run.size() < shadow.size() && !watched.left)
    watched.left = static_cast<std::int64_t>(run.size());
  for (const Indicator indicator : kIndicators)
    watched.alarms[static_cast<std::size_t>(indicator)] = kill_switch.alarm(indicator);
  return watched;
}

}  // namespace fp8lab::experiments
