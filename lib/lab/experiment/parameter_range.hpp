#pragma once
// The range of a parameter: an interval for its numbers, and the length of a list.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace fp8lab {

/// `INTERVAL`, `FEWEST to MOST of INTERVAL`, for texts `FEWEST to MOST`, `models`, `FEWEST to MOST
/// of models`. An interval is `[1, 64]` and the like, as in mathematics. Numbers are always finite.
struct ParameterRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  std::string interval;     ///< as written, or "models"; empty if not given
  std::int64_t fewest = 1;  ///< values of a list
  std::int64_t most = 1000;

  /// Throws `Error` for text of another form and for an empty interval.
  static ParameterRange parse(std::string_view text);

  /// Whether a number is finite and in the interval.
  [[nodiscard]] bool holds(double value) const;
};

}  // namespace fp8lab
