#include "leading-indicators/indicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 3> kNames{"gradient amax", "second moment", "loss gap"};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t index_of(Indicator indicator) { return static_cast<std::size_t>(indicator); }

bool is_block_weight(const train::Parameter<float>& p) {
  return p.shape.size() == 2 && p.name.starts_with("block");
}

double gradient_amax(train::Model<float>& model) {
  float largest = 0.0F;
  for (const auto* p : model.parameters())
    if (is_block_weight(*p)) largest = std::max(largest, amax(p->gradient, false));
  return static_cast<double>(largest);
}

double mean_second_moment(train::Trainer& trainer) {
  PairwiseSum sum;
  std::size_t count = 0;
  std::size_t i = 0;
  for (const auto* p : trainer.model().parameters()) {
    const std::size_t at = i++;
    if (!is_block_weight(*p)) continue;
    std::vector<float> v(p->value.size());
    trainer.optimizer().copy_v(at, v);
    for (const float x : v) sum.add(static_cast<double>(x));
    count += v.size();
  }
  return count == 0 ? 0.0 : sum.total() / static_cast<double>(count);
}

double finite_or_infinity(double x) {
  if (std::isfinite(x)) return x;
  return kInfinity;
}

double log_ratio(double run, double shadow) { return finite_or_infinity(std::log(run / shadow)); }

}  // namespace

std::string_view to_string(Indicator indicator) { return kNames[index_of(indicator)]; }

std::vector<StepFigures> record_run(const StudySettings& settings, const Variant& variant,
                                    train::OutlierChannels outliers, std::uint64_t seed) {
  train::Trainer trainer(trainer_options(settings, variant, outliers, seed),
                         training_data(settings, seed));
  std::vector<StepFigures> steps;
  while (trainer.steps_done() < settings.schedule.steps) {
    StepFigures figures;
    figures.loss = trainer.compute_gradients(trainer.steps_done(), pass_context(settings));
    if (!std::isfinite(figures.loss)) break;
    figures.gradient_amax = gradient_amax(trainer.model());
    (void)trainer.apply_gradients(figures.loss);
    figures.second_moment = mean_second_moment(trainer);
    steps.push_back(figures);
  }
  return steps;
}

KillSwitch::KillSwitch(const Thresholds& thresholds) : thresholds_(thresholds) {
  const auto check = [](const char* name, bool good, const char* expected, double got) {
    require(good, name, expected, fmt::format("{:g}", got));
  };
  const Thresholds& t = thresholds;
  check("amax_ratio", t.amax_ratio > 1.0, "above 1", t.amax_ratio);
  check("moment_ratio", t.moment_ratio > 1.0, "above 1", t.moment_ratio);
  check("loss_gap", t.loss_gap >= 0.0, "at least 0", t.loss_gap);
  check("window", t.window >= 1, "at least 1", static_cast<double>(t.window));
  check("patience", t.patience >= 1, "at least 1", static_cast<double>(t.patience));
}

void KillSwitch::observe(const StepFigures& run, const StepFigures& shadow) {
  const double gap = run.loss - shadow.loss;
  history_[0].push_back(log_ratio(run.gradient_amax, shadow.gradient_amax));
  history_[1].push_back(log_ratio(run.second_moment, shadow.second_moment));
  history_[2].push_back(finite_or_infinity(gap));
  const auto step = static_cast<std::int64_t>(history_[0].size()) - 1;
  if (step + 1 < thresholds_.window) return;
  const std::array<double, 3> limits{thresholds_.amax_ratio, thresholds_.moment_ratio,
                                     thresholds_.loss_gap};
  for (const Indicator indicator : kIndicators) {
    const std::size_t i = index_of(indicator);
    const double now = value(indicator);
    const bool ratio = indicator != Indicator::loss_gap;
    const bool beyond = now > limits[i] || (ratio && now < 1.0 / limits[i]);
    beyond_[i] = beyond ? beyond_[i] + 1 : 0;
    if (beyond_[i] >= thresholds_.patience && !alarms_[i]) alarms_[i] = step;
  }
}

double KillSwitch::value(Indicator indicator) const {
  const std::vector<double>& history = history_[index_of(indicator)];
  const auto count = std::min(history.size(), static_cast<std::size_t>(thresholds_.window));
  if (count == 0) return indicator == Indicator::loss_gap ? 0.0 : 1.0;
  double sum = 0.0;
  for (std::size_t i = history.size() - count; i < history.size(); ++i) sum += history[i];
  const double mean = sum / static_cast<double>(count);
  return indicator == Indicator::loss_gap ? mean : std::exp(mean);
}

std::optional<std::int64_t> KillSwitch::alarm(Indicator indicator) const {
  return alarms_[index_of(indicator)];
}

std::optional<std::int64_t> KillSwitch::tripped() const {
  std::optional<std::int64_t> first;
  for (const auto& alarm : alarms_)
    if (alarm && (!first || *alarm < *first)) first = alarm;
  return first;
}

WatchedRun watch(const Thresholds& thresholds, const std::vector<StepFigures>& run,
                 const std::vector<StepFigures>& shadow) {
  KillSwitch kill_switch(thresholds);
  WatchedRun watched;
  const std::size_t steps = std::min(run.size(), shadow.size());
  for (std::size_t step = 0; step < steps; ++step) {
    kill_switch.observe(run[step], shadow[step]);
    for (const Indicator indicator : kIndicators)
      watched.values[index_of(indicator)].push_back(kill_switch.value(indicator));
    const bool away = watched.values[index_of(Indicator::loss_gap)].back() > thresholds.leave_gap &&
                      static_cast<std::int64_t>(step) + 1 >= thresholds.window;
    if (!away) watched.left.reset();
    if (away && !watched.left) watched.left = static_cast<std::int64_t>(step);
  }
  if (run.size() < shadow.size() && !watched.left)
    watched.left = static_cast<std::int64_t>(run.size());
  for (const Indicator indicator : kIndicators)
    watched.alarms[index_of(indicator)] = kill_switch.alarm(indicator);
  return watched;
}

}  // namespace fp8lab::experiments
