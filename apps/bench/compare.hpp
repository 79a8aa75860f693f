#pragma once
// Which rows of a benchmark changed between two builds by more than the machine's noise.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fp8lab::cli {

/// What `fp8lab bench ... --json` printed, and the name of its file for messages.
struct BenchReport {
  std::string name;
  nlohmann::json json;
};

/// The median of fewer quotients has no interval that holds it with 95 %.
inline constexpr std::size_t kFewestPairs = 6;

/// Compares reports in pairs: `reports` holds one of the build before, then one of the build after
/// that ran right behind it, and so on. A row's speed is its ratio to the ceiling that was measured
/// between its runs, so that a slow minute of the machine counts for both. Returns
///
///   rows       of each row in both: benchmark, row, before and after (medians of the speeds),
///              quotient (the median of after / before), low and high (an interval that holds the
///              median of its distribution with 95 % or more, by order statistics), verdict
///   one_side   rows that only the reports before or only those after have
///   pairs, limit, slower (the number of rows that are slower)
///   by_chance  how many rows would seem slower, were all of them equal and the limit 0
///
/// A row is "slower" if its interval lies below 1 and its quotient below 1 - `limit`, "faster" if
/// its interval lies above 1, else "same". Of fewer than `kFewestPairs` pairs, low and high are the
/// least and the largest quotient and the verdict is "unknown": from one run to the next, rows
/// change by more than their own spread. Throws `Error` for reports that are not of one kind: other
/// benchmarks, settings, threads or instruction sets, or wrong bits.
nlohmann::json compare_benchmarks(const std::vector<BenchReport>& reports, double limit);

/// The comparison for people: rows that changed, and how many did not.
std::string comparison_text(const nlohmann::json& comparison);

}  // namespace fp8lab::cli
