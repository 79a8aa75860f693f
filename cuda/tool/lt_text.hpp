#pragma once
// What `search` and `observe` found of cuBLASLt, for people.

#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/product/calls.hpp"

namespace fp8lab::cuda {

/// A promotion interval and a scale order, and how many outputs it gives.
struct LtCandidate {
  std::int64_t interval = 0;
  ScaleOrder order = ScaleOrder::product_then_fma;
  std::uint64_t same = 0;
};

/// `all 65536 outputs` or `65535 of 65536 outputs`.
std::string share_text(std::uint64_t same, std::uint64_t outputs);

/// Two lines: the candidates that give most outputs, all of them, and the best of the others.
std::string ranking_text(std::vector<LtCandidate> candidates, std::uint64_t outputs);

/// How many calls were observed and how many have one candidate left; then, for each of these, the
/// accumulation that was asked for and how many calls are like it, most first.
std::vector<std::string> summary_of(const std::vector<ObservedCall>& calls);

}  // namespace fp8lab::cuda
