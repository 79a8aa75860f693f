#include "fp8lab/verify/tails.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fp8lab {
namespace {

constexpr double kHeavier = 2.0;  // the tails of errors may be heavier than Gumbel's

constexpr double kFloor = 0x1p-52;  // below it a metric is FP64's own error

/// The factor by which a deviation of n values may be too small, at 95 %: sqrt((n - 1) / q) with
/// chi-square's quantile q by Wilson and Hilferty.
double allowance(std::size_t n) {
  const double f = static_cast<double>(n) - 1.0;
  const double cube = 1.0 - 2.0 / (9.0 * f) - 1.645 * std::sqrt(2.0 / (9.0 * f));
  return 1.0 / std::sqrt(cube * cube * cube);
}

/// The z of which a normal number is below with probability 1 - risk, by bisection.
double normal_quantile(double risk) {
  double low = 0.0;
  double high = 40.0;
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(middle / std::numbers::sqrt2) > risk ? low : high) = middle;
  }
  return low;
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments_of(const std::vector<double>& values) {
  Moments m;
  for (const double x : values) m.mean += x / static_cast<double>(values.size());
  for (const double x : values) m.deviation += (x - m.mean) * (x - m.mean);
  m.deviation =
      std::sqrt(m.deviation / static_cast<double>(values.size() - 1)) * allowance(values.size());
  return m;
}

std::vector<double> logarithms(std::vector<double> values) {
  for (double& x : values) x = std::log(std::max(x, kFloor));
  return values;
}

}  // namespace

double tail_of_whole(const std::vector<double>& values, double risk) {
  if (*std::max_element(values.begin(), values.end()) <= 0.0) return 0.0;
  const Moments m = moments_of(logarithms(values));
  const double spread = std::sqrt(1.0 + 1.0 / static_cast<double>(values.size()));
  return std::exp(m.mean + normal_quantile(risk) * m.deviation * spread);
}

/// `blocks`: how many times as many elements the whole output has.
double tail_of_maximum(const std::vector<double>& values, double risk, double blocks, bool heavy) {
  if (*std::max_element(values.begin(), values.end()) <= 0.0) return 0.0;
  const Moments m = moments_of(heavy ? logarithms(values) : values);
  const double width = m.deviation * std::sqrt(6.0) / std::numbers::pi;
  const double place = m.mean - 0.5772156649015329 * width;
  const double reach = std::log(blocks) - std::log(-std::log1p(-risk));
  const double tail = place + (heavy ? 1.0 : kHeavier) * width * reach;
  return heavy ? std::exp(tail) : tail;
}

}  // namespace fp8lab
