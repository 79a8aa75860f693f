#include "training/train/monitor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab::train {
namespace {

constexpr std::array<std::string_view, 6> kWarningNames{"not finite", "overflow",   "underflow",
                                                        "amax jump",  "amax limit", "zeros"};
constexpr std::array<std::string_view, 2> kOptionNames{"default", "guide"};

double zero_percent_of(std::span<const float> values) {
  const auto zeros = static_cast<double>(std::count(values.begin(), values.end(), 0.0F));
  return values.empty() ? 0.0 : 100.0 * zeros / static_cast<double>(values.size());
}

}  // namespace

std::string_view to_string(WarningKind kind) {
  return kWarningNames[static_cast<std::size_t>(kind)];
}

MonitorOptions find_monitor_options(std::string_view name, std::string_view argument) {
  if (find_name(kOptionNames, argument, name) == 0) return {};
  constexpr double kNever = std::numeric_limits<double>::infinity();
  MonitorOptions guide;
  guide.underflow_percent = kNever;
  guide.overflow_percent = kNever;
  guide.amax_jump = kNever;
  guide.amax_limit = 448.0;  // E4M3's largest number
  guide.zero_percent = 50.0;
  return guide;
}

void TrainingMonitor::warn(std::string_view name, WarningKind kind, double value,
                           double threshold) {
  if (value > threshold) warnings_.push_back({step_, std::string(name), kind, value, threshold});
}

void TrainingMonitor::warn_of_zeros(std::string_view name, std::span<const float> values,
                                    double more_percent) {
  // No share is above all of a tensor: it is not counted then.
  if (options_.zero_percent < 100.0)
    warn(name, WarningKind::zeros, zero_percent_of(values) + more_percent, options_.zero_percent);
}

TensorRecord& TrainingMonitor::note(std::string_view name, std::span<const float> values) {
  TensorRecord& record = tensors_[std::string(name)];
  record.amax = amax(values, true);
  record.not_finite = static_cast<std::uint64_t>(
      std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); }));
  warn(name, WarningKind::not_finite, static_cast<double>(record.not_finite), 0.0);
  warn(name, WarningKind::amax_limit, static_cast<double>(record.amax), options_.amax_limit);
  const auto largest = std::max_element(record.amaxes.begin(), record.amaxes.end());
  if (largest != record.amaxes.end() && *largest > 0.0F)
    warn(name, WarningKind::amax_jump,
         static_cast<double>(record.amax) / static_cast<double>(*largest), options_.amax_jump);
  record.amaxes.push_back(record.amax);
  if (record.amaxes.size() > options_.history) record.amaxes.pop_front();
  return record;
}

void TrainingMonitor::observe(std::string_view name, std::span<const float> values) {
  TensorRecord& record = note(name, values);
  record.cast = false;
  warn_of_zeros(name, values, 0.0);
  write(name, record);
}

void TrainingMonitor::observe(std::string_view name, const FloatMatrix& x,
                              const QuantizedTensor& q) {
  const QuantizationStatistics statistics = quantization_statistics(x, q);
  TensorRecord& record = note(name, x.values);
  record.cast = true;
  record.statistics = statistics;
  warn(name, WarningKind::overflow, statistics.overflow_percent, options_.overflow_percent);
  warn(name, WarningKind::underflow, statistics.underflow_percent, options_.underflow_percent);
  warn_of_zeros(name, x.values, statistics.underflow_percent);
  write(name, record);
}

void TrainingMonitor::write(std::string_view name, const TensorRecord& record) {
  if (log_ == nullptr) return;
  nlohmann::ordered_json line{
      {"step", step_}, {"tensor", name}, {"amax", record.amax}, {"not_finite", record.not_finite}};
  if (record.cast) {
    const QuantizationStatistics& s = record.statistics;
    line.update({{"underflow_percent", s.underflow_percent},
                 {"overflow_percent", s.overflow_percent},
                 {"saturated_percent", s.saturated_percent},
                 {"nan_percent", s.nan_percent},
                 {"sqnr_db", s.sqnr_db},
                 {"scale_min", s.scale_min},
                 {"scale_max", s.scale_max}});
  }
  *log_ << json_text(line) << '\n';
}

void TrainingMonitor::end_step(const std::map<std::string, double>& figures) {
  if (log_ != nullptr) {
    nlohmann::ordered_json line{{"step", step_}};
    for (const auto& [name, value] : figures) line[name] = value;
    *log_ << json_text(line) << '\n';
  }
  ++step_;
}

GradientScaleRule::GradientScaleRule(const GradientScaleOptions& options, double scale)
    : options_(options), scale_(scale) {
  const auto percent = [](const char* name, double value) {
    require(value >= 0.0 && value <= 100.0, name, "0 to 100", fmt::format("{:g}", value));
  };
  percent("zero_percent", options.zero_percent);
  percent("overflow_percent", options.overflow_percent);
  require(scale >= 1.0 && scale <= options.most, "scale", fmt::format("1 to {:g}", options.most),
          fmt::format("{:g}", scale));
}

double GradientScaleRule::update(const TrainingMonitor& monitor) {
  double zeros = 0.0;
  double overflow = 0.0;
  double count = 0.0;
  for (const auto& [name, record] : monitor.tensors())
    if (record.cast && name.ends_with("gradient")) {
      zeros += record.statistics.underflow_percent;
      overflow += record.statistics.overflow_percent;
      count += 1.0;
    }
  if (count == 0.0) return scale_;
  if (overflow / count > options_.overflow_percent)
    scale_ = std::max(1.0, 0.5 * scale_);
  else if (zeros / count > options_.zero_percent)
    scale_ = std::min(options_.most, 2.0 * scale_);
  return scale_;
}

}  // namespace fp8lab::train
