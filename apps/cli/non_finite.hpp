#pragma once
// NaN and infinities told by every command that multiplies or quantizes: a line on stderr,
// counts in --json.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "fp8lab/product/non_finite.hpp"
#include "say.hpp"

namespace fp8lab::cli {

inline void warn_of_non_finite(const NonFiniteReport& report) {
  const std::string text = describe(report);
  if (!text.empty()) say(stderr, "fp8lab: warning: {}\n", text);
}

inline nlohmann::json to_json(const NonFiniteReport& report) {
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, counts] : report)
    result[name] = {{"nan", counts.nan}, {"infinite", counts.infinite}};
  return result;
}

}  // namespace fp8lab::cli
