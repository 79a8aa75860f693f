#include "sweep-efficiency/point_costs.hpp"

#include <cmath>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {

CostShape find_cost_shape(std::string_view name) {
  if (name == "constant") return CostShape::constant;
  if (name == "log_normal") return CostShape::log_normal;
  if (name == "pareto") return CostShape::pareto;
  throw Error("distributions", "constant, log_normal or pareto", std::string(name));
}

std::vector<double> draw_costs(const RandomStream& random, const CostDistribution& distribution,
                               double mean, std::int64_t count) {
  std::vector<double> costs(static_cast<std::size_t>(count), mean);
  const double sigma = distribution.log_normal_sigma;
  const double alpha = distribution.pareto_alpha;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (distribution.shape == CostShape::log_normal)
      costs[i] *= std::exp(sigma * random.normal(i) - 0.5 * sigma * sigma);
    if (distribution.shape == CostShape::pareto)
      costs[i] *= (alpha - 1.0) / alpha * std::pow(1.0 - random.uniform(i), -1.0 / alpha);
  }
  return costs;
}

}  // namespace fp8lab::experiments
