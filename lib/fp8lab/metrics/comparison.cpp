#include "fp8lab/metrics/comparison.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool agree(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

void require_same_size(std::size_t reference, std::size_t actual) {
  require(reference == actual, "actual", fmt::format("{} elements, as the reference", reference),
          fmt::format("{}", actual));
}

double ratio(double numerator, double denominator) {
  if (denominator == 0.0) return numerator == 0.0 ? 0.0 : kInfinity;
  return numerator / denominator;
}

struct Sums {
  PairwiseSum xx, yy, xy, dd, magnitude, drift;
};

void summarize(const Sums& sums, Comparison& c) {
  const double xx = sums.xx.total();
  const double yy = sums.yy.total();
  const double xy = sums.xy.total();
  const double dd = sums.dd.total();
  c.relative_l2 = ratio(std::sqrt(dd), std::sqrt(xx));
  c.sqnr_db = dd == 0.0 ? kInfinity : 10.0 * std::log10(xx / dd);
  if (xx == 0.0 && yy == 0.0) return;
  c.cosine = xx == 0.0 || yy == 0.0 ? 0.0 : xy / (std::sqrt(xx) * std::sqrt(yy));
  c.calc_diff = 1.0 - 2.0 * xy / (xx + yy);
  c.mean_signed_relative = ratio(sums.drift.total(), sums.magnitude.total());
}

void poison(Comparison& c, std::size_t index) {
  c.relative_l2 = c.sqnr_db = c.cosine = c.calc_diff = kNan;
  c.max_absolute = c.max_relative = c.mean_signed_relative = kNan;
  c.max_absolute_index = c.max_relative_index = index;
}

template <typename Reference, typename Actual>
Comparison compare_elements(std::span<const Reference> reference, std::span<const Actual> actual) {
  const FloatEnvironment environment;
  require_same_size(reference.size(), actual.size());
  Comparison c;
  c.count = reference.size();
  Sums sums;
  std::size_t first_non_finite = 0;
  std::size_t measured = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto x = static_cast<double>(reference[i]);
    const auto y = static_cast<double>(actual[i]);
    if (!agree(x, y)) ++c.mismatches;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (!agree(x, y) && c.non_finite_mismatches++ == 0) first_non_finite = i;
      continue;
    }
    ++measured;
    const double d = y - x;
    sums.xx.add(x * x);
    sums.yy.add(y * y);
    sums.xy.add(x * y);
    sums.dd.add(d * d);
    sums.magnitude.add(std::abs(x));
    sums.drift.add(x < 0.0 ? -d : x > 0.0 ? d : 0.0);
    if (std::abs(d) > c.max_absolute) {
      c.max_absolute = std::abs(d);
      c.max_absolute_index = i;
    }
    if (const double relative = ratio(std::abs(d), std::abs(x)); relative > c.max_relative) {
      c.max_relative = relative;
      c.max_relative_index = i;
    }
  }
  summarize(sums, c);
  if (c.non_finite_mismatches > 0 || (measured == 0 && c.count > 0)) poison(c, first_non_finite);
  return c;
}

}  // namespace

double Comparison::mismatch_rate() const {
  return count == 0 ? 0.0 : static_cast<double>(mismatches) / static_cast<double>(count);
}

Comparison compare(std::span<const double> reference, std::span<const double> actual) {
  return compare_elements(reference, actual);
}

Comparison compare(std::span<const double> reference, std::span<const float> actual) {
  return compare_elements(reference, actual);
}

Comparison compare(std::span<const float> reference, std::span<const float> actual) {
  return compare_elements(reference, actual);
}

double mismatch_rate(std::span<const float> reference, std::span<const float> actual,
                     double relative, double absolute) {
  const FloatEnvironment environment;
  require_same_size(reference.size(), actual.size());
  require(relative >= 0.0, "relative", "a tolerance >= 0", fmt::format("{}", relative));
  require(absolute >= 0.0, "absolute", "a tolerance >= 0", fmt::format("{}", absolute));
  if (reference.empty()) return 0.0;
  std::size_t far = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto x = static_cast<double>(reference[i]);
    const auto y = static_cast<double>(actual[i]);
    if (agree(x, y)) continue;
    // An infinite x would make any y close, since the tolerance is then infinite.
    const bool finite = std::isfinite(x) && std::isfinite(y);
    if (!finite || std::abs(y - x) > absolute + relative * std::abs(x)) ++far;
  }
  return static_cast<double>(far) / static_cast<double>(reference.size());
}

}  // namespace fp8lab
