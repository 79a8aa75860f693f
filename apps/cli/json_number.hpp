#pragma once
// JSON has no NaN and no infinity: those go out as the strings "nan", "inf", "-inf".

#include <cmath>
#include <nlohmann/json.hpp>

namespace fp8lab::cli {

inline nlohmann::json json_number(double x) {
  if (std::isnan(x)) return std::signbit(x) ? "-nan" : "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

}  // namespace fp8lab::cli
