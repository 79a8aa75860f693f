#pragma once
// Words for plots and findings, and log sweeps.

#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

/// `E4M3`, `BF16`: how people say it.
std::string short_name(const Format& f);

/// `kept`, `flushed` or `raised`: what a policy does to subnormals.
std::string subnormal_name(const CastPolicy& policy);

/// `a`, `a and b`, `a, b and c`; nothing of none.
std::string in_words(const std::vector<std::string>& names);

/// `log_uniform` as `log-uniform`.
std::string plain_name(std::string_view name);

/// 10^from ... 10^to in equal steps on a log axis.
struct LogAxis {
  double from = 0.0;
  double to = 0.0;
  double per_decade = 1.0;
};

/// Its values. Throws `Error` for NAME_to where `to` is below `from`.
std::vector<double> log_steps(std::string_view name, const LogAxis& axis);

}  // namespace fp8lab::experiments
