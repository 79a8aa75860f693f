#pragma once
// Quantiles far beyond what a few trials show: extrapolated, under a stated shape.

#include <vector>

namespace fp8lab {

/// The 1 - risk quantile of values whose logarithms are normal. Their deviation is taken at the
/// upper end of its 95 % interval. 0 where all are 0. At least two values.
double tail_of_whole(const std::vector<double>& values, double risk);

/// The same of maxima of equally many elements, of which the maximum of `blocks` times as many is
/// asked for: a Gumbel distribution by its moments, with the same allowance. `heavy`: of
/// logarithms.
double tail_of_maximum(const std::vector<double>& values, double risk, double blocks, bool heavy);

}  // namespace fp8lab
