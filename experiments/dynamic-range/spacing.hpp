#pragma once
// How finely each format resolves a number.

#include <string>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// Adds the table and the plot of the distances between neighbours, relative to the number, for
/// formats by name.
void add_spacing(const std::vector<std::string>& formats, Results& results);

}  // namespace fp8lab::experiments
