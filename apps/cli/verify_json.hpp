#pragma once
// A verify report as JSON.

#include <nlohmann/json.hpp>

#include "fp8lab/verify/verify.hpp"

namespace fp8lab::cli {

nlohmann::json to_json(const VerifyReport& report);

}  // namespace fp8lab::cli
