#pragma once
// A straight line through points by least squares, with the standard error of
// its slope. On logarithms the slope is the exponent of a power law.

#include <span>

namespace fp8lab::experiments {

struct LineFit {
  double slope = 0.0;
  double intercept = 0.0;
  double slope_standard_error = 0.0;  ///< from the residuals; NaN for fewer than 3 points
  int points = 0;
};

/// y = intercept + slope * x. Throws `Error` for lengths that differ or fewer than 2 points.
LineFit fit_line(std::span<const double> x, std::span<const double> y);

/// The fit of log2 y against log2 x; points with y <= 0 (no error at all) are left out.
LineFit fit_power_law(std::span<const double> x, std::span<const double> y);

}  // namespace fp8lab::experiments
