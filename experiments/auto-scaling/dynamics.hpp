#pragma once
// mu over the steps of a gradient that drifts and spikes.

#include "auto-scaling/schemes.hpp"
#include "fp8lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// The gradient's size at each step, in units of the first one's: drift there and back with
/// spikes, or what `file` holds.
std::vector<double> read_sizes(const Parameters& p);

/// The table, plots and findings of the rules in `dynamics_rules`.
void add_dynamics(const RunContext& context, const MuRule& rule, Results& results);

}  // namespace fp8lab::experiments
