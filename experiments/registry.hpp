#pragma once
// The experiments of this program.

#include <string_view>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab {

/// All experiments, in the recommended order of reading.
const std::vector<Experiment>& all_experiments();

/// Throws `Error` with the names there are.
const Experiment& find_experiment(std::string_view name);

}  // namespace fp8lab
