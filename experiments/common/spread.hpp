#pragma once
// Mean and spread over repeats.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {

struct Spread {
  double mean = 0.0;
  double min = 0.0;
  double max = 0.0;
};

/// Of at least one value; all zeros for none.
inline Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  PairwiseSum sum;
  for (const double v : values) sum.add(v);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {sum.total() / static_cast<double>(values.size()), *low, *high};
}

/// `31.2 % (30.6 to 32)`: the mean of shares and their range, in percent.
inline std::string range_text(const Spread& shares) {
  return fmt::format("{:.3g} % ({:.3g} to {:.3g})", 100.0 * shares.mean, 100.0 * shares.min,
                     100.0 * shares.max);
}

/// The 99.5 % point of Student's t.
inline double student_t_995(std::size_t degrees_of_freedom) {
  constexpr std::array<double, 10> kFew{63.657, 9.925, 5.841, 4.604, 4.032,
                                        3.707,  3.499, 3.355, 3.250, 3.169};
  if (degrees_of_freedom <= kFew.size()) return kFew[degrees_of_freedom - 1];
  // Cornish and Fisher's expansion; off by less than 0.011 here.
  const auto n = static_cast<double>(degrees_of_freedom);
  return 2.57583 + 4.91655 / n + 8.83500 / (n * n);
}

/// Mean and half width of the interval that holds one further draw with a probability of 99 %, if
/// draws are normal and independent: Student's t with the standard deviation of these draws. The
/// mean of other repeats lies in it more often still.
struct Interval {
  double mean = 0.0;
  double half_width = std::numeric_limits<double>::quiet_NaN();  ///< NaN for fewer than 2 draws
};

inline Interval interval_of(std::span<const double> values) {
  Interval interval{spread_of(values).mean};
  if (values.size() < 2) return interval;
  PairwiseSum squares;
  for (const double v : values) squares.add((v - interval.mean) * (v - interval.mean));
  const auto n = static_cast<double>(values.size());
  const double deviation = std::sqrt(squares.total() / (n - 1.0));
  interval.half_width = student_t_995(values.size() - 1) * deviation * std::sqrt(1.0 + 1.0 / n);
  return interval;
}

/// What equal draws of a share of `elements` leave open: a count of 0 in each does not make 3 in
/// another one unlikely.
inline double share_resolution(std::size_t elements) { return 3.0 / static_cast<double>(elements); }

/// `25.7 ± 1.2`, in units of 1 / `factor`; of a single draw its value alone. `resolution`: the
/// least half width, in the units of `values`.
inline std::string interval_text(std::span<const double> values, double factor = 1.0,
                                 double resolution = 0.0) {
  Interval interval = interval_of(values);
  std::string mean = fmt::format("{:.3g}", factor * interval.mean);
  if (std::isnan(interval.half_width)) return mean;
  interval.half_width = std::max(interval.half_width, resolution);
  return fmt::format("{} ± {:.2g}", mean, factor * interval.half_width);
}

/// The same of shares, in percent: `25.7 ± 1.2 %`, or `25.7 % (0 to 61)` where the interval would
/// leave 0 to 100 %. `factor`: 100 for shares of 1, 1 for shares in percent. `resolution` is in the
/// units of `values`.
inline std::string share_text(std::span<const double> values, double factor = 100.0,
                              double resolution = 0.0) {
  const Interval interval = interval_of(values);
  const double mean = factor * interval.mean;
  const double half_width = factor * std::max(interval.half_width, resolution);
  if (std::isnan(interval.half_width) || (mean >= half_width && mean + half_width <= 100.0))
    return interval_text(values, factor, resolution) + " %";
  return fmt::format("{:.3g} % ({:.3g} to {:.3g})", mean, std::max(0.0, mean - half_width),
                     std::min(100.0, mean + half_width));
}

/// What `±` in a finding means.
inline constexpr std::string_view kIntervalMeaning =
    "± or in brackets: the interval that holds 99 % of single draws";

}  // namespace fp8lab::experiments
