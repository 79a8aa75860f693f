#pragma once
// Mean and spread over repeats.

#include <algorithm>
#include <span>

#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {

struct Spread {
  double mean = 0.0;
  double min = 0.0;
  double max = 0.0;
};

/// Of at least one value; all zeros for none.
inline Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  PairwiseSum sum;
  for (const double v : values) sum.add(v);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {sum.total() / static_cast<double>(values.size()), *low, *high};
}

}  // namespace fp8lab::experiments
