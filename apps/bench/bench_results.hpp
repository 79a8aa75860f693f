#pragma once
// A benchmark's report as a result folder, for `fp8lab report`.

#include <nlohmann/json.hpp>

#include "lab/experiment/experiment.hpp"

namespace fp8lab::cli {

/// A table for each list of rows in `report`, the object that `bench NAME --json` has under NAME,
/// one for each object, and one of its single figures, named `setup`. `ceilings` gives another.
/// A table's first column says what a row is of.
Results bench_results(const nlohmann::json& report, const nlohmann::json& ceilings);

}  // namespace fp8lab::cli
