#include "fp8lab/experiment/experiment.hpp"

#include "auto-scaling/dynamics.hpp"
#include "auto-scaling/schemes.hpp"

namespace fp8lab::experiments {

Results auto_scaling(const RunContext& context) {
  const MuRule rule = read_rule(context.parameters);
  Results results;
  add_reductions(context, rule, results);
  add_dynamics(context, rule, results);
  return results;
}

}  // namespace fp8lab::experiments
