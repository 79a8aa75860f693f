#pragma once
// The exponents of K in the error, over sets of operands.

#include <string>
#include <vector>

#include "accumulator-drift/sweep.hpp"
#include "lab/experiment/table.hpp"

namespace fp8lab::experiments {

/// Mean and spread of every curve's exponent.
Table slope_table(const Sweep& sweep);

/// The exponent of every set of operands.
Table slope_repeat_table(const Sweep& sweep);

/// A sentence for each distribution.
void add_slope_findings(const Sweep& sweep, std::vector<std::string>& findings);

}  // namespace fp8lab::experiments
