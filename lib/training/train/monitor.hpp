#pragma once
// Monitors the tensors of any training run, of this library or another one. It takes
// named tensors and reports the errors of their FP8 casts, with warnings and a log.

#include <cstdint>
#include <deque>
#include <iosfwd>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/statistics.hpp"

namespace fp8lab::train {

struct MonitorOptions {
  std::size_t history = 16;        ///< amaxes kept for each tensor
  double underflow_percent = 5.0;  ///< warns above
  double overflow_percent = 0.1;   ///< warns above
  double amax_jump = 8.0;          ///< warns if amax exceeds that of the history by this factor
  double amax_limit = std::numeric_limits<double>::infinity();  ///< of a tensor before its cast
  double zero_percent = 100.0;  ///< warns above: zeros, those before the cast included
};

/// What warns: "default", or "guide", the thresholds of the FP8 guide's monitor: more than 50 %
/// zeros, an amax above 448, and nothing else but values that are not finite. Throws `Error` that
/// names `argument`.
MonitorOptions find_monitor_options(std::string_view name, std::string_view argument);

enum class WarningKind : std::uint8_t {
  not_finite,
  overflow,
  underflow,
  amax_jump,
  amax_limit,
  zeros,
};
std::string_view to_string(WarningKind kind);

struct MonitorWarning {
  std::int64_t step = 0;
  std::string tensor;
  WarningKind kind = WarningKind::not_finite;
  double value = 0.0;      ///< by kind: elements, percent, percent, ratio, amax, percent
  double threshold = 0.0;  ///< the limit that `value` exceeds
};

/// The state of one tensor after its last observation.
struct TensorRecord {
  float amax = 0.0F;             ///< NaN elements ignored
  std::uint64_t not_finite = 0;  ///< elements of the tensor before its cast
  bool cast = false;             ///< whether `statistics` are those of a cast
  QuantizationStatistics statistics{};
  std::deque<float> amaxes;  ///< newest last
};

class TrainingMonitor {
 public:
  /// Steps are counted from `first_step`, which is above 0 if a run resumes.
  explicit TrainingMonitor(MonitorOptions options = {}, std::int64_t first_step = 0)
      : options_(options), step_(first_step) {}

  /// Each observation adds one JSON line to `log` (null: none), each step one more:
  ///   {"step":3,"tensor":"block0.qkv.gradient","amax":0.01,"underflow_percent":0.2,...}
  ///   {"step":3,"loss":4.1,"gradient_norm":1.2}
  /// `log` must outlive the monitor. NaN and infinities are written as null.
  void log_to(std::ostream* log) { log_ = log; }

  /// Observes a tensor in high precision.
  void observe(std::string_view name, std::span<const float> values);

  /// Observes a tensor and its cast. Throws `Error` if their sizes differ.
  void observe(std::string_view name, const FloatMatrix& x, const QuantizedTensor& q);

  /// Ends a step. `figures`: values of the whole run, by name.
  void end_step(const std::map<std::string, double>& figures = {});

  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Sets the number of the next step, after a rollback or skipped steps.
  void set_step(std::int64_t step) { step_ = step; }
  [[nodiscard]] const std::map<std::string, TensorRecord, std::less<>>& tensors() const {
    return tensors_;
  }
  [[nodiscard]] const std::vector<MonitorWarning>& warnings() const { return warnings_; }

 private:
  TensorRecord& note(std::string_view name, std::span<const float> values);
  void warn(std::string_view name, WarningKind kind, double value, double threshold);
  /// Of the zeros among values, and the share that becomes zero in the cast.
  void warn_of_zeros(std::string_view name, std::span<const float> values, double more_percent);
  void write(std::string_view name, const TensorRecord& record);

  MonitorOptions options_;
  std::ostream* log_ = nullptr;
  std::int64_t step_ = 0;
  std::map<std::string, TensorRecord, std::less<>> tensors_;
  std::vector<MonitorWarning> warnings_;
};

struct GradientScaleOptions {
  double zero_percent = 5.0;      ///< the scale doubles above, in the mean over the tensors
  double overflow_percent = 0.1;  ///< and halves above
  double most = 16777216.0;       ///< a power of two that it does not exceed; 1 is the least
};

/// The FP8 guide's rule against gradients that underflow: it raises their scale, the loss scale,
/// while too many become zero in their casts (*chosen*: factor 2, and the way back).
class GradientScaleRule {
 public:
  /// `scale`: at the start. Throws `Error` for options outside their range.
  GradientScaleRule(const GradientScaleOptions& options, double scale);

  /// Takes the last casts of the tensors called `...gradient` into account; no tensors, no change.
  /// The scale for the next step.
  double update(const TrainingMonitor& monitor);

  [[nodiscard]] double scale() const { return scale_; }

 private:
  GradientScaleOptions options_;
  double scale_;
};

}  // namespace fp8lab::train
