#include "tool/errors.hpp"

#include <algorithm>
#include <cmath>

namespace fp8lab::cuda {

Errors errors_of(const std::vector<float>& got, const std::vector<float>& exact) {
  double largest = 0.0;
  double max_error = 0.0;
  double error_squares = 0.0;
  double squares = 0.0;
  double outward = 0.0;
  double magnitudes = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double x = static_cast<double>(exact[i]);
    const double error = static_cast<double>(got[i]) - x;
    largest = std::max(largest, std::fabs(x));
    max_error = std::max(max_error, std::fabs(error));
    error_squares += error * error;
    squares += x * x;
    if (x != 0.0) outward += x > 0.0 ? error : -error;
    magnitudes += std::fabs(x);
  }
  if (largest == 0.0) return {};
  return {max_error / largest, std::sqrt(error_squares / squares), outward / magnitudes};
}

}  // namespace fp8lab::cuda
