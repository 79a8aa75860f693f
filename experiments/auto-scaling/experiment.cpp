#include "fp8lab/experiment/experiment.hpp"

#include "auto-scaling/dynamics.hpp"
#include "auto-scaling/settings.hpp"

namespace fp8lab::experiments {

Results auto_scaling(const RunContext& context) {
  const auto settings = read_parameters<AutoScalingSettings>(context.parameters);
  Results results;
  add_reductions(context, settings, results);
  add_dynamics(context, settings, results);
  return results;
}

}  // namespace fp8lab::experiments
