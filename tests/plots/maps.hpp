#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lab/plots/plot.hpp"

namespace fp8lab::test {

/// A heat map of one row.
inline HeatMap map_of(std::vector<double> values, bool log = false) {
  HeatMap map{"m", "t", "x", "y", "v", {}, {"r"}, {}, log};
  for (std::size_t i = 0; i < values.size(); ++i) map.columns.push_back(std::to_string(i));
  map.values = std::move(values);
  return map;
}

}  // namespace fp8lab::test
