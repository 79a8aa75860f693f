#pragma once
// Error of attention against how K and V are cached, and how long they are.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// A name of `cache_rules()`, or of DeepSeek-V3.2's rows. Throws `Error` that lists them.
std::string cache_called(std::string_view name);

struct CacheSettings {
  std::vector<std::string> rules;
  std::vector<std::int64_t> lengths;
  std::vector<double> value_sizes;
  std::int64_t queries = 0;
  std::int64_t head_size = 0;
  double deviation = 0.0;
};

/// A cache of K and V at one length, and one head of it.
struct CachePoint {
  std::string rule;
  std::int64_t length = 0;
  double value_size = 0.0;
  double stored = 0.0;  ///< relative L2 error of exact attention on what the cache holds
  double kernel = 0.0;  ///< the same of a kernel that reads its codes
};

/// All caches, lengths and heads, of one draw.
std::vector<CachePoint> measure_caches(const RunContext& context, const CacheSettings& settings);

Table cache_table(const std::vector<CachePoint>& points);
/// Of several draws, at the smallest head.
Plot cache_plot(const std::vector<std::vector<CachePoint>>& draws, const CacheSettings& settings);
/// The error of each cache at the longest length, in the smallest head.
std::vector<std::string> cache_findings(const std::vector<std::vector<CachePoint>>& draws,
                                        const CacheSettings& settings);

}  // namespace fp8lab::experiments
