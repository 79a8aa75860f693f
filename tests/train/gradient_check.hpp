#pragma once
// Analytic gradients against central differences in FP64.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

/// Far above the error of differences (about 1e-9), far below that of a wrong term.
inline constexpr double kGradientTolerance = 1e-6;

inline std::vector<double> random_values(std::string_view name, std::size_t count,
                                         double sigma = 1.0) {
  const RandomStream random(17, name);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = sigma * random.normal(i);
  return values;
}

inline Matrix<double> random_matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                                    double sigma = 1.0) {
  Matrix<double> x(rows, columns);
  x.values = random_values(name, x.values.size(), sigma);
  return x;
}

/// d loss / d values by central differences.
inline std::vector<double> numeric_gradient(const std::function<double()>& loss,
                                            std::vector<double>& values) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double kept = values[i];
    values[i] = kept + kStep;
    const double above = loss();
    values[i] = kept - kStep;
    const double below = loss();
    values[i] = kept;
    gradient[i] = (above - below) / (2.0 * kStep);
  }
  return gradient;
}

/// The largest difference, relative to the largest numeric element.
inline double gradient_error(const std::vector<double>& numeric,
                             const std::vector<double>& analytic) {
  double largest = 0.0;
  double worst = 0.0;
  for (std::size_t i = 0; i < numeric.size(); ++i) {
    largest = std::max(largest, std::abs(numeric[i]));
    worst = std::max(worst, std::abs(numeric[i] - analytic[i]));
  }
  return worst / largest;
}

/// `analytic` is the gradient of `loss` with respect to `values`; a gradient
/// that is wrong in one element, or by a factor next to 1, would not be.
inline void check_gradient(std::string_view what, const std::function<double()>& loss,
                           std::vector<double>& values, const std::vector<double>& analytic) {
  INFO(what);
  REQUIRE(values.size() == analytic.size());
  const std::vector<double> numeric = numeric_gradient(loss, values);
  CHECK(gradient_error(numeric, analytic) < kGradientTolerance);
  std::vector<double> scaled = analytic;
  for (double& g : scaled) g *= 1.0 + 1e-4;
  CHECK(gradient_error(numeric, scaled) > kGradientTolerance);
  std::vector<double> missing = analytic;
  *std::max_element(missing.begin(), missing.end()) = 0.0;
  CHECK(gradient_error(numeric, missing) > kGradientTolerance);
}

/// The scalar that a layer's output is turned into: its product with `weights`.
inline double weighted(const Matrix<double>& y, const Matrix<double>& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * weights.values[i];
  return sum;
}

}  // namespace fp8lab::train
