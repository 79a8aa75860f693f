#pragma once
// How finely each format resolves a number.

#include "fp8lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// Adds the table and the plot of the distances between neighbours, relative to the number, for
/// the formats of `spacing_formats`.
void add_spacing(const RunContext& context, Results& results);

}  // namespace fp8lab::experiments
