#include "training/train/monitor.hpp"
#include "fp8lab/core/json_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

namespace fp8lab::train {
namespace {

constexpr std::array<std::string_view, 4> kWarningNames{"not finite", "overflow", "underflow",
                                                        "amax jump"};

}  // namespace

std::string_view to_string(WarningKind kind) {
  return kWarningNames[static_cast<std::size_t>(kind)];
}

void TrainingMonitor::warn(std::string_view name, WarningKind kind, double value,
                           double threshold) {
  if (value > threshold) warnings_.push_back({step_, std::string(name), kind, value, threshold});
}

TensorRecord& TrainingMonitor::note(std::string_view name, std::span<const float> values) {
  TensorRecord& record = tensors_[std::string(name)];
  record.amax = amax(values, true);
  record.not_finite = static_cast<std::uint64_t>(
      std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); }));
  warn(name, WarningKind::not_finite, static_cast<double>(record.not_finite), 0.0);
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

}  // namespace fp8lab::train
