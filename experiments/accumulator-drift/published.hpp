#pragma once
// The setups that publications quote.

#include "accumulator-drift/sweep.hpp"

namespace fp8lab::experiments {

/// Under Hopper's model, with and without promotion: the table of their means over the sets of
/// operands, that of each set, and a finding for each setup.
void add_published_setups(const Sweep& sweep, Results& results);

}  // namespace fp8lab::experiments
