#pragma once
// How long the points of a sweep take.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"

namespace fp8lab::experiments {

enum class CostShape { constant, log_normal, pareto };

/// "constant", "log_normal" or "pareto". Throws `Error` naming `distributions`.
CostShape find_cost_shape(std::string_view name);

struct CostDistribution {
  CostShape shape = CostShape::constant;
  double log_normal_sigma = 1.0;  ///< of the natural logarithm
  double pareto_alpha = 2.5;      ///< P(cost > x) ~ x^-alpha; above 1
};

/// Costs of `count` points with expectation `mean` (seconds), from a stream of draws.
std::vector<double> draw_costs(const RandomStream& random, const CostDistribution& distribution,
                               double mean, std::int64_t count);

}  // namespace fp8lab::experiments
