#pragma once
// Other people's casts, and models of them, against ours over every binary32 input.

#include <cstdint>
#include <nlohmann/json.hpp>

namespace fp8lab::cli {

/// For each baseline and format the number of inputs whose code is not ours, by kind of
/// input, with the first of them. Takes 4096 inputs of every 4096 * share from 0 on. `verified` is
/// true: a difference is a finding, not a failure.
nlohmann::json conformance(int threads, std::uint32_t share);
void print_conformance(const nlohmann::json& result);

}  // namespace fp8lab::cli
