#include "fp8lab/metrics/kill_switch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kIndicatorNames{"gradient amax", "second moment",
                                                          "loss gap"};
constexpr std::array<std::string_view, 3> kActionNames{"stop", "roll-back", "bf16"};

std::size_t index_of(Indicator indicator) { return static_cast<std::size_t>(indicator); }

double finite_or_infinity(double x) {
  if (std::isfinite(x)) return x;
  return std::numeric_limits<double>::infinity();
}

double log_ratio(double run, double shadow) { return finite_or_infinity(std::log(run / shadow)); }

}  // namespace

std::string_view to_string(Indicator indicator) { return kIndicatorNames[index_of(indicator)]; }

std::string_view to_string(KillAction action) {
  return kActionNames[static_cast<std::size_t>(action)];
}

KillAction find_kill_action(std::string_view name, std::string_view argument) {
  return find_enumerator<KillAction>(kActionNames, argument, name);
}

KillSwitch::KillSwitch(const KillThresholds& thresholds) : thresholds_(thresholds) {
  const auto check = [](const char* name, bool good, const char* expected, double got) {
    require(good, name, expected, fmt::format("{:g}", got));
  };
  const KillThresholds& t = thresholds;
  check("amax_ratio", t.amax_ratio > 1.0, "above 1", t.amax_ratio);
  check("moment_ratio", t.moment_ratio > 1.0, "above 1", t.moment_ratio);
  check("loss_gap", t.loss_gap >= 0.0, "at least 0", t.loss_gap);
  check("window", t.window >= 1, "at least 1", static_cast<double>(t.window));
  check("patience", t.patience >= 1, "at least 1", static_cast<double>(t.patience));
}

void KillSwitch::observe(const StepFigures& run, const StepFigures& shadow) {
  const FloatEnvironment environment;
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
  const FloatEnvironment environment;
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

std::optional<Indicator> KillSwitch::cause() const {
  const std::optional<std::int64_t> first = tripped();
  if (!first) return std::nullopt;
  return *std::ranges::find_if(kIndicators,
                               [&](Indicator one) { return alarms_[index_of(one)] == first; });
}

}  // namespace fp8lab
