#include "fp8lab/plots/tics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr int kMaxTics = 10;

/// The smallest step among 1, 2, 3, 5, 10, 20 ... that leaves at most `most` tics.
int tic_step(int first, int last, int most = kMaxTics) {
  constexpr int kSteps[] = {1, 2, 3, 5};
  for (int scale = 1;; scale *= 10)
    for (const int step : kSteps)
      if ((last - first) / (step * scale) + 1 <= most) return step * scale;
}

int floor_to(int value, int step) {
  return static_cast<int>(std::floor(static_cast<double>(value) / step)) * step;
}

/// 1 2 5 10 20 50: for axes too short for whole decades.
std::vector<Tic> tics_within_decades(double low, double high) {
  const double decades = std::log10(high / low);
  std::vector<Tic> tics;
  for (int n = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, n) <= high; ++n) {
    for (int digit = 1; digit <= 9; ++digit) {
      const double position = digit * std::pow(10.0, n);
      if (position < low || position > high) continue;
      const bool labelled = digit == 1 || digit == 2 || digit == 5 || decades < 0.8;
      tics.push_back({position, labelled ? fmt::format("{:g}", position) : "", !labelled});
    }
  }
  return tics;
}

/// Equal steps of 1, 2 or 5: for axes that are shorter still.
std::vector<Tic> tics_at_equal_steps(double low, double high) {
  const double decade = std::pow(10.0, std::floor(std::log10((high - low) / 4.0)));
  const double wanted = (high - low) / 4.0 / decade;
  const double step = decade * (wanted >= 5.0 ? 5.0 : wanted >= 2.0 ? 2.0 : 1.0);
  std::vector<Tic> tics;
  for (double n = std::ceil(low / step); n * step <= high; n += 1.0)
    tics.push_back({n * step, fmt::format("{:.6g}", n * step), false});
  return tics;
}

std::vector<Tic> tics_at_decades(double low, double high) {
  const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  const int step = tic_step(first, last);
  std::vector<Tic> tics;
  for (int n = floor_to(first, step); n <= last; ++n) {
    const double decade = std::pow(10.0, n);
    if (n >= first && n % step == 0) tics.push_back({decade, fmt::format("10^{{{}}}", n), false});
    if (step > 1 && n >= first && n % step != 0) tics.push_back({decade, "", true});
    for (int digit = 2; step == 1 && digit <= 9; ++digit)
      if (digit * decade > low && digit * decade < high) tics.push_back({digit * decade, "", true});
  }
  return tics;
}

std::vector<Tic> tics_at_octaves(double low, double high) {
  const int first = static_cast<int>(std::ceil(std::log2(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(high) + 1e-9));
  const bool plain = first >= -3 && last <= 20;
  // Plain numbers of many digits need room: labels get half as many.
  const int step = tic_step(first, last, plain && last > 12 ? kMaxTics / 2 + 1 : kMaxTics);
  std::vector<Tic> tics;
  for (int n = first; n <= last; ++n) {
    const double octave = std::ldexp(1.0, n);
    const bool labelled = (n - first) % step == 0;
    const std::string label = plain ? fmt::format("{}", octave) : fmt::format("2^{{{}}}", n);
    tics.push_back({octave, labelled ? label : "", !labelled});
  }
  return tics;
}

AxisLayout lay_out_log(const Axis& axis, double low, double high) {
  // A little air, so that no point sits on the frame; much, around a single value.
  const double air = low == high ? 2.0 : std::pow(high / low, 0.03);
  AxisLayout layout{std::max(low / air, 1e-300), std::min(high * air, 1e300), {}};
  if (axis.log_base == 2 && std::log2(high / low) >= 2.0)
    layout.tics = tics_at_octaves(layout.low, layout.high);
  else if (std::log10(high / low) < 2.0)
    layout.tics = tics_within_decades(layout.low, layout.high);
  else
    layout.tics = tics_at_decades(layout.low, layout.high);
  const auto labelled = std::count_if(layout.tics.begin(), layout.tics.end(),
                                      [](const Tic& tic) { return !tic.minor; });
  if (labelled < 2) layout.tics = tics_at_equal_steps(layout.low, layout.high);
  return layout;
}

}  // namespace

bool can_show(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.log || value > 0.0);
}

AxisLayout lay_out(const Axis& axis, std::span<const double> values, double zero_share) {
  require(axis.log_base == 10 || axis.log_base == 2, fmt::format("axis {}: log_base", axis.label),
          "10 or 2", std::to_string(axis.log_base));
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!can_show(axis, value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return axis.log ? lay_out_log(axis, 1.0, 10.0) : AxisLayout{};
  if (axis.log) return lay_out_log(axis, low, high);
  const double air = low == high ? std::max(0.5, std::abs(low) * 0.1) : (high - low) * 0.03;
  // Shares and errors start at zero: an axis that leaves zero out overstates changes.
  const bool from_zero = low >= 0.0 && low < zero_share * high;
  return {from_zero ? 0.0 : low - air, high + air, {}};
}

}  // namespace fp8lab
