#pragma once
// A verify report as a result folder, for `fp8lab report`.

#include <string>

#include "fp8lab/verify/verify.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::cli {

/// Where mismatches are: a cell a tile, row 0 on top. Only for a report that has mismatches.
HeatMap mismatch_map(const VerifyReport& report);

/// Findings, tables and the map.
Results results_of(const VerifyReport& report);

}  // namespace fp8lab::cli
