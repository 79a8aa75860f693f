#include "fp8lab/core/short_number.hpp"

#include <fmt/format.h>

#include <cmath>

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

std::string short_number(double value) {
  const FloatEnvironment environment;
  if (std::isnan(value)) return "nan";
  const double magnitude = std::abs(value);
  return magnitude >= 9999.5 && magnitude < 1e6 ? fmt::format("{:.0f}", value)
                                                : fmt::format("{:.4g}", value);
}

}  // namespace fp8lab
