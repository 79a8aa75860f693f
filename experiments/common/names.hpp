#pragma once
// Words for plots and findings, parameters with a range, and log sweeps.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

/// `E4M3`, `BF16`: how people say it.
std::string short_name(const Format& f);

/// `kept`, `flushed` or `raised`: what a policy does to subnormals.
std::string subnormal_name(const CastPolicy& policy);

/// `log_uniform` as `log-uniform`.
std::string plain_name(std::string_view name);

/// An integer parameter that must be at least 1. Throws `Error`.
std::size_t positive(const Parameters& parameters, std::string_view key);

/// 10^from ... 10^to in equal steps on a log axis.
std::vector<double> log_steps(double from, double to, double per_decade);

}  // namespace fp8lab::experiments
