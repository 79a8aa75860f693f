#pragma once
// What the sweep finds at single lengths, over its sets of operands.

#include <optional>
#include <string>
#include <vector>

#include "accumulator-drift/sweep.hpp"
#include "lab/experiment/table.hpp"

namespace fp8lab::experiments {

/// Hopper's accumulator at the largest K: with promotion every 128 terms and without.
void add_promotion_finding(const Sweep& sweep, std::vector<std::string>& findings);

/// Nearest rounding stops being harmless where the sum's unit outgrows the products.
void add_nearest_finding(const Sweep& sweep, std::vector<std::string>& findings);

/// The points of these findings on every set of operands.
Table quoted_repeat_table(const Sweep& sweep);

std::optional<Headline> headline_of(const Sweep& sweep);

}  // namespace fp8lab::experiments
