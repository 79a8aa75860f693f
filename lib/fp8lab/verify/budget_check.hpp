#pragma once
// Checks which mismatches are within their error budgets.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The numbers of wrong elements within their budgets.
struct BudgetSummary {
  std::uint64_t checked = 0;  ///< checked mismatches: the largest, and evenly spread ones
  std::uint64_t within = 0;
  double median = 0.0;                  ///< median of total budget / |exact|, without zeros
  std::vector<std::int64_t> outside{};  ///< indices of those outside, ascending
};

/// The codes of two outputs of one format.
struct CodePair {
  std::span<const std::byte> golden;
  std::span<const std::byte> got;
};

/// Indices of at least 4096 of `count` mismatches (payloads of NaN too), evenly spread, or of all.
std::vector<std::int64_t> some_mismatches(FormatId id, std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count);

/// Computes the budgets of some of `mismatches`. If `decides`, of more of them, and of the elements
/// with the largest errors relative to the norms of their operands.
BudgetSummary check_budgets(const Product& product, const CodePair& codes,
                            std::span<const std::int64_t> mismatches, bool decides, int threads);

}  // namespace fp8lab
