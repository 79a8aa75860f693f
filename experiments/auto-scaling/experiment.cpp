#include "lab/experiment/experiment.hpp"

#include <algorithm>
#include <iterator>

#include "auto-scaling/dynamics.hpp"
#include "auto-scaling/settings.hpp"
#include "common/repeats.hpp"

namespace fp8lab::experiments {

Results auto_scaling(const RunContext& context) {
  const auto settings = read_parameters<AutoScalingSettings>(context.parameters);
  // The dynamics read files: a bad one is refused before anything is computed.
  Results dynamics;
  add_dynamics(part_of(context, 0.0, 0.4), settings, dynamics);
  Results results;
  add_reductions(part_of(context, 0.4, 1.0), settings, results);
  std::ranges::move(dynamics.tables, std::back_inserter(results.tables));
  std::ranges::move(dynamics.plots, std::back_inserter(results.plots));
  std::ranges::move(dynamics.findings, std::back_inserter(results.findings));
  return results;
}

}  // namespace fp8lab::experiments
