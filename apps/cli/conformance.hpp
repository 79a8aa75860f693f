#pragma once
// Other people's casts, and models of them, against ours over every binary32 input.

#include <nlohmann/json.hpp>

namespace fp8lab::cli {

/// For each baseline and format the number of inputs whose code is not ours, by kind of
/// input, with the first of them. `verified` is true: a difference is a finding, not a failure.
nlohmann::json conformance(int threads);
void print_conformance(const nlohmann::json& rows);

}  // namespace fp8lab::cli
