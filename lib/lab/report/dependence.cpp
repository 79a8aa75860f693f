#include "lab/report/dependence.hpp"

#include <cmath>
#include <numbers>

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kLeastFreedom = 5;
constexpr double kChance = 0.01;

/// The value that a normal variable is above with a chance of `tail`, by halving.
double normal_quantile(double tail) {
  double low = 0.0;
  double high = 40.0;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    const double above = 0.5 * std::erfc(middle / std::numbers::sqrt2);
    (above > tail ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

/// The variance within points.
struct Noise {
  double variance = 0.0;
  std::size_t freedom = 0;
};

Noise noise_of(const GridDraws& draws) {
  Noise noise;
  for (const auto& [point, values] : draws) {
    const double mean = mean_of(values);
    for (const double v : values) noise.variance += (v - mean) * (v - mean);
    noise.freedom += values.size() - 1;
  }
  if (noise.freedom > 0) noise.variance /= static_cast<double>(noise.freedom);
  return noise;
}

/// Calls `compare(a, b)` with the draws of every two points that differ on `axis` alone.
template <typename Compare>
void for_pairs(const GridDraws& draws, std::size_t axis, Compare compare) {
  for (auto a = draws.begin(); a != draws.end(); ++a)
    for (auto b = std::next(a); b != draws.end(); ++b) {
      std::vector<std::size_t> other = b->first;
      other[axis] = a->first[axis];
      if (other == a->first) compare(a->second, b->second);
    }
}

bool matters(const GridDraws& draws, std::size_t axis, const Noise& noise) {
  std::size_t pairs = 0;
  for_pairs(draws, axis, [&](const auto&, const auto&) { ++pairs; });
  if (pairs == 0) return false;
  const double t = student_t(0.5 * kChance / static_cast<double>(pairs), noise.freedom);
  bool beyond = false;
  for_pairs(draws, axis, [&](const std::vector<double>& a, const std::vector<double>& b) {
    const double error = std::sqrt(noise.variance * (1.0 / static_cast<double>(a.size()) +
                                                     1.0 / static_cast<double>(b.size())));
    beyond = beyond || std::abs(mean_of(a) - mean_of(b)) > t * error;
  });
  return beyond;
}

}  // namespace

double student_t(double tail, std::size_t degrees_of_freedom) {
  const FloatEnvironment environment;
  const double z = normal_quantile(tail);
  const auto n = static_cast<double>(degrees_of_freedom);
  const double z2 = z * z;
  const double first = z * (z2 + 1.0) / 4.0;
  const double second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
  const double third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
  const double fourth =
      z * ((((79.0 * z2 + 776.0) * z2 + 1482.0) * z2 - 1920.0) * z2 - 945.0) / 92160.0;
  return z + (first + (second + (third + fourth / n) / n) / n) / n;
}

std::optional<std::vector<bool>> axes_that_matter(const GridDraws& draws, std::size_t axes) {
  const FloatEnvironment environment;
  const Noise noise = noise_of(draws);
  if (noise.freedom < kLeastFreedom) return std::nullopt;
  std::vector<bool> found(axes);
  for (std::size_t axis = 0; axis < axes; ++axis) found[axis] = matters(draws, axis, noise);
  return found;
}

}  // namespace fp8lab
