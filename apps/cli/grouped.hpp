#pragma once
// Batched and grouped products on the command line: what `gemm`, `verify` and `identify` print of
// them.

#include <nlohmann/json.hpp>

#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/verify/grouped.hpp"

namespace fp8lab::cli {

nlohmann::json to_json(const GroupedProduct& product);
nlohmann::json to_json(const GroupedReport& report);

}  // namespace fp8lab::cli
