#pragma once
// Broken versions of a kernel, each verified: caught, and named?

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/verify/verify.hpp"
#include "verify/campaign/emulated_kernel.hpp"

namespace fp8lab::test {

/// One broken version: the product that was asked for and what was stored instead.
struct Fault {
  std::string what;                ///< for the table
  std::vector<std::string> right;  ///< names of causes that say what is wrong; empty: none known
  std::function<VerifyReport()> verify;
};

/// What a report names first: a cause of the whole output, or else what its first region holds or
/// the cause there; "-" for nothing.
inline std::string first_named(const VerifyReport& report) {
  if (report.diagnosis && !report.diagnosis->causes.empty())
    return report.diagnosis->causes.front().name;
  for (const Region& region : report.regions) {
    if (region.content != RegionContent::other) return std::string(to_string(region.content));
    if (region.diagnosis && !region.diagnosis->causes.empty())
      return region.diagnosis->causes.front().name;
  }
  return "-";
}

/// Verifies every fault, prints the table, and demands that all are caught, `named` or more of them
/// named right, and none wrongly.
inline void run_campaign(const std::string& title, const std::vector<Fault>& faults, int named) {
  std::string table =
      fmt::format("{}\n  {:<52} {:<10} {:<34} {}\n", title, "fault", "verdict", "named", "right?");
  int right = 0;
  for (const Fault& fault : faults) {
    const VerifyReport report = fault.verify();
    const std::string name = first_named(report);
    const bool is_right = std::ranges::find(fault.right, name) != fault.right.end();
    right += is_right ? 1 : 0;
    table += fmt::format("  {:<52} {:<10} {:<34} {}\n", fault.what, to_string(report.verdict), name,
                         is_right ? "yes" : "no");
    INFO(fault.what << " named " << name << ", expected " << fmt::format("{}", fault.right) << "\n"
                    << describe(report));
    CHECK(report.verdict == Verdict::mismatch);
    CHECK((is_right || name == "-"));
  }
  table += fmt::format("  {} of {} named right\n", right, faults.size());
  fmt::print("{}", table);
  CHECK(right >= named);
}

inline Operand stored_operand(const Product& product, const std::vector<std::byte>& codes) {
  return {"got",
          {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
          nullptr};
}

}  // namespace fp8lab::test
