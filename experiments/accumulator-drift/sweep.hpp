#pragma once
// The sweep behind the accumulator-drift experiment: every accumulator at every
// K and promotion interval, and exponents fitted to the results.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accumulator-drift/drift.hpp"
#include "accumulator-drift/fit.hpp"
#include "accumulator-drift/settings.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// DeepSeek-V3's N_C, the interval that is measured at every K.
inline constexpr std::int64_t kDeepSeekInterval = 128;
inline constexpr std::string_view kHopper = "sm90.wgmma.e4m3";
/// 14-bit sums of one addition at a time.
inline constexpr std::string_view kNearest = "sequential14.rne";
inline constexpr std::string_view kTruncated = "sequential14.rz";

/// What the operands are held in: E4M3 with amax scales, or BF16, whose 16-bit
/// products leave the accumulator's rounding as the only grid.
enum class OperandFormat : std::uint8_t { e4m3, bf16 };
std::string_view to_string(OperandFormat format);

/// One accumulator with one promotion interval on one distribution; 0: no promotion.
struct Curve {
  OperandFormat operands = OperandFormat::e4m3;
  Distribution distribution = Distribution::uniform;
  std::string accumulator;
  std::int64_t interval = 0;

  friend bool operator==(const Curve&, const Curve&) = default;
};

struct Point {
  Curve curve;
  std::int64_t k = 0;
  Comparison error;
};

/// All points that the parameters of `context` ask for, in a fixed order.
class Sweep {
 public:
  explicit Sweep(const RunContext& context);
  void run();

  [[nodiscard]] const RunContext& context() const { return *context_; }
  [[nodiscard]] const DriftSettings& settings() const { return settings_; }
  [[nodiscard]] const std::vector<Distribution>& distributions() const {
    return settings_.distributions;
  }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  [[nodiscard]] OperandSpec spec(Distribution distribution, std::int64_t k) const;

  /// The curves that have a point at every K: E4M3 accumulators without
  /// promotion, the promoted ones every 128, then those on BF16 operands.
  [[nodiscard]] std::vector<Curve> curves(Distribution distribution) const;

  /// The points of `curve` in the order of K as a plot's series, without a label.
  [[nodiscard]] Series series(const Curve& curve) const;
  /// The exponent of error ~ K^slope within the fit window of its operands, on one set of
  /// operands; slope NaN below 2 points.
  [[nodiscard]] LineFit slope(const Curve& curve, std::size_t repeat = 0) const;
  /// The exponents of every set of operands; those that are NaN are left out.
  [[nodiscard]] std::vector<double> slopes(const Curve& curve) const;
  /// The largest K; 0 without any.
  [[nodiscard]] std::int64_t longest() const;
  /// Of set number `set` of the operands, from 0: that of the run.
  [[nodiscard]] std::uint64_t seed_of(std::int64_t set) const;
  /// Whether a finding quotes the point, which is then measured on every set of operands: Hopper's
  /// unit at the largest K, and 14-bit sums of uniform operands at K = 1024 and 16384.
  [[nodiscard]] bool quoted(const Curve& curve, std::int64_t k) const;
  /// A figure of a fitted or quoted point on every set of operands; empty without such a point.
  [[nodiscard]] std::vector<double> each_set(const Curve& curve, std::int64_t k,
                                             double Comparison::*figure) const;
  /// The point's error, or null where the sweep has no such point.
  [[nodiscard]] const Comparison* find(const Curve& curve, std::int64_t k) const;

 private:
  void measure_e4m3(Distribution distribution, std::int64_t k);
  void measure_bf16(Distribution distribution, std::int64_t k, std::uint64_t seed,
                    std::vector<Point>& points) const;
  void measure_repeat(std::uint64_t seed, std::vector<Point>& points) const;
  [[nodiscard]] bool fitted(OperandFormat operands, std::int64_t k) const;

  const RunContext* context_;
  DriftSettings settings_;
  std::optional<TensorSource> own_a_;
  std::optional<TensorSource> own_b_;
  std::vector<Point> points_;
  std::vector<std::vector<Point>> repeats_;  ///< what is fitted or quoted, on further operands
};

}  // namespace fp8lab::experiments
