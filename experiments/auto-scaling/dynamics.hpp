#pragma once
// mu over the steps of a gradient that drifts and spikes.

#include "auto-scaling/settings.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// The table, plots and findings of the rules in `dynamics_rules`.
void add_dynamics(const RunContext& context, const AutoScalingSettings& settings, Results& results);

}  // namespace fp8lab::experiments
