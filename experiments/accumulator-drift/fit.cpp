#include "accumulator-drift/fit.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {

LineFit fit_line(std::span<const double> x, std::span<const double> y) {
  require(x.size() == y.size(), "y", fmt::format("{} values, as x has", x.size()),
          fmt::format("{}", y.size()));
  require(x.size() >= 2, "x", "at least 2 points", fmt::format("{}", x.size()));
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0.0;
  double xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  LineFit fit;
  fit.points = static_cast<int>(x.size());
  fit.slope = xy / xx;
  fit.intercept = mean_y - fit.slope * mean_x;
  double residual = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double r = y[i] - fit.intercept - fit.slope * x[i];
    residual += r * r;
  }
  fit.slope_standard_error = x.size() > 2 ? std::sqrt(residual / (n - 2.0) / xx)
                                          : std::numeric_limits<double>::quiet_NaN();
  return fit;
}

LineFit fit_power_law(std::span<const double> x, std::span<const double> y) {
  require(x.size() == y.size(), "y", fmt::format("{} values, as x has", x.size()),
          fmt::format("{}", y.size()));
  std::vector<double> log_x;
  std::vector<double> log_y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(y[i] > 0.0)) continue;
    log_x.push_back(std::log2(x[i]));
    log_y.push_back(std::log2(y[i]));
  }
  return fit_line(log_x, log_y);
}

}  // namespace fp8lab::experiments
