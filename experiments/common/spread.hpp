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

/// The 97.5 % point of Student's t.
inline double student_t_975(std::size_t degrees_of_freedom) {
  constexpr std::array<double, 10> kFew{12.706, 4.303, 3.182, 2.776, 2.571,
                                        2.447,  2.365, 2.306, 2.262, 2.228};
  if (degrees_of_freedom <= kFew.size()) return kFew[degrees_of_freedom - 1];
  // Cornish and Fisher's expansion; off by less than 0.003 here.
  const auto n = static_cast<double>(degrees_of_freedom);
  return 1.95996 + 2.37227 / n + 2.82250 / (n * n);
}

/// Mean and half width of the interval that holds one further draw with a probability of 95 %, if
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
  interval.half_width = student_t_975(values.size() - 1) * deviation * std::sqrt(1.0 + 1.0 / n);
  return interval;
}

/// `25.7 +- 1.2`; of a single draw its value alone.
inline std::string interval_text(std::span<const double> values, double factor = 1.0) {
  const Interval interval = interval_of(values);
  const std::string mean = fmt::format("{:.3g}", factor * interval.mean);
  if (std::isnan(interval.half_width)) return mean;
  return fmt::format("{} +- {:.2g}", mean, factor * interval.half_width);
}

/// What `+-` in a finding means.
inline constexpr std::string_view kIntervalMeaning = "+-: where 95 % of single draws lie";

}  // namespace fp8lab::experiments
