#include "common/spread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

/// Two digits, without an exponent below 10^6.
std::string half_width_text(double half_width) {
  if (!(half_width >= 99.5 && half_width < 1e6)) return fmt::format("{:.2g}", half_width);
  const double unit = std::pow(10.0, std::floor(std::log10(half_width)) - 1.0);
  return fmt::format("{:.0f}", std::round(half_width / unit) * unit);
}

}  // namespace

double student_t_995(std::size_t degrees_of_freedom) {
  constexpr std::array<double, 10> kFew{63.657, 9.925, 5.841, 4.604, 4.032,
                                        3.707,  3.499, 3.355, 3.250, 3.169};
  if (degrees_of_freedom <= kFew.size()) return kFew[degrees_of_freedom - 1];
  // Cornish and Fisher's expansion; off by less than 0.011 here.
  const auto n = static_cast<double>(degrees_of_freedom);
  return 2.57583 + 4.91655 / n + 8.83500 / (n * n);
}

Interval interval_of(std::span<const double> values) {
  Interval interval;
  if (values.empty()) return interval;
  const auto n = static_cast<double>(values.size());
  PairwiseSum sum;
  for (const double v : values) sum.add(v);
  interval.mean = sum.total() / n;
  if (values.size() < 2) return interval;
  PairwiseSum squares;
  for (const double v : values) squares.add((v - interval.mean) * (v - interval.mean));
  const double deviation = std::sqrt(squares.total() / (n - 1.0));
  interval.half_width = student_t_995(values.size() - 1) * deviation * std::sqrt(1.0 + 1.0 / n);
  return interval;
}

Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  const Interval interval = interval_of(values);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {interval.mean, *low, *high, interval.half_width};
}

bool below_beyond_chance(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t kLeastDraws = 3;
  constexpr std::size_t kEnoughDraws = 5;  // for their order alone
  const auto positive = [](double v) { return v > 0.0 && std::isfinite(v); };
  const bool ratios =
      std::all_of(a.begin(), a.end(), positive) && std::all_of(b.begin(), b.end(), positive);
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] < b[i])) return false;
    differences.push_back(ratios ? std::log(a[i] / b[i]) : a[i] - b[i]);
  }
  if (differences.size() < kLeastDraws) return false;
  if (differences.size() >= kEnoughDraws) return true;
  // `half_width` is that of a single draw, sqrt(n + 1) times as wide as the mean's.
  const Interval difference = interval_of(differences);
  const double of_mean = std::sqrt(static_cast<double>(differences.size()) + 1.0);
  return difference.mean + difference.half_width / of_mean < 0.0;
}

std::vector<std::size_t> smallest_of(std::span<const std::vector<double>> rows) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const auto& other) { return below_beyond_chance(other, rows[i]); }))
      found.push_back(i);
  return found;
}

std::vector<std::size_t> largest_of(std::span<const std::vector<double>> rows) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const auto& other) { return below_beyond_chance(rows[i], other); }))
      found.push_back(i);
  return found;
}

std::string range_text(const Spread& shares) {
  return fmt::format("{:.3g} % ({:.3g} to {:.3g})", 100.0 * shares.mean, 100.0 * shares.min,
                     100.0 * shares.max);
}

std::string interval_text(const Interval& interval, double factor, double resolution) {
  std::string mean = fmt::format("{:.3g}", factor * interval.mean);
  if (std::isnan(interval.half_width)) return mean;
  return fmt::format("{} ± {}", mean,
                     half_width_text(factor * std::max(interval.half_width, resolution)));
}

std::string interval_text(std::span<const double> values, double factor, double resolution) {
  return interval_text(interval_of(values), factor, resolution);
}

std::string log_interval_text(std::span<const double> values, double factor, double most) {
  std::vector<double> logarithms;
  for (const double value : values) {
    if (!(value > 0.0) || !std::isfinite(value)) return interval_text(values, factor);
    logarithms.push_back(std::log(factor * value));
  }
  const Interval interval = interval_of(logarithms);
  std::string mean = fmt::format("{:.3g}", std::exp(interval.mean));
  if (std::isnan(interval.half_width)) return mean;
  return fmt::format("{} [{:.3g}, {:.3g}]", mean, std::exp(interval.mean - interval.half_width),
                     std::min(most, std::exp(interval.mean + interval.half_width)));
}

std::string share_text(const Interval& interval, double factor, double resolution) {
  const double mean = factor * interval.mean;
  const double half_width = factor * std::max(interval.half_width, resolution);
  if (std::isnan(interval.half_width) || (mean >= half_width && mean + half_width <= 100.0))
    return interval_text(interval, factor, resolution) + " %";
  return fmt::format("{:.3g} % ({:.3g} to {:.3g})", mean, std::max(0.0, mean - half_width),
                     std::min(100.0, mean + half_width));
}

std::string share_text(std::span<const double> values, double factor, double resolution) {
  return share_text(interval_of(values), factor, resolution);
}

}  // namespace fp8lab::experiments
