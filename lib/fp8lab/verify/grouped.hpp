#pragma once
// Is the output of a batched or grouped product right? Group by group, with the mistakes that such
// kernels make, and a look at the rows that are in no group.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/verify.hpp"

namespace fp8lab {

/// What rows that are in no group must hold.
enum class UngroupedRule : std::uint8_t {
  any,   ///< anything: torch and DeepGEMM leave them unspecified
  zero,  ///< zeros of either sign: the caller cleared the output, and the kernel must not write
         ///< there
};
std::string_view to_string(UngroupedRule rule);
/// any or zero. Throws `Error`.
UngroupedRule find_ungrouped_rule(std::string_view name);

struct GroupOutcome {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< of the output as a matrix
  VerifyReport report;         ///< its rows count from the group's first
  /// What regions at the group's edges say about its offsets or its count, and whose output it has.
  std::vector<Cause> findings;
};

/// Rows in no group that hold what they must not.
struct UngroupedOutcome {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::uint64_t wrong = 0;  ///< elements
  std::optional<Cause> cause;
};

struct GroupedReport {
  Verdict verdict = Verdict::pass;
  Check check;
  GroupKind kind = GroupKind::batched;
  FormatId output = FormatId::f32;
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;            ///< groups
  std::uint64_t outputs = 0;         ///< that are in groups
  std::uint64_t mismatches = 0;      ///< of them
  std::vector<GroupOutcome> groups;  ///< those with rows, by their place in the output
  UngroupedRule rule = UngroupedRule::any;
  std::int64_t ungrouped = 0;  ///< rows
  std::vector<UngroupedOutcome> ungrouped_wrong;
  /// Of the largest group on which the check has power; of the largest one if it has none on any.
  std::optional<PowerReport> power;
  std::int64_t power_group = 0;
  std::size_t power_of_check = 0;
  NonFiniteReport non_finite;
};

/// Checks `got`, of the product's shape, group by group: gates judge each group alone. Every fault
/// of `power` and weights, scales, bias and terms of a neighbour must be seen on some group, else
/// the verdict is `no_power`. Throws `Error` for another shape or type, and for no group with rows.
GroupedReport verify(const GroupedProduct& product, const Operand& got,
                     const VerifyOptions& options = {}, UngroupedRule rule = UngroupedRule::any);

/// The report for people: at most three wrong groups in full.
std::string describe(const GroupedReport& report);

}  // namespace fp8lab
