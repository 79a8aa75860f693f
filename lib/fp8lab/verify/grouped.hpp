#pragma once
// Checks the output of a batched or grouped product group by group, with the known mistakes of such
// kernels, and the rows that are in no group.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/verify.hpp"

namespace fp8lab {

/// The required content of rows that are in no group.
enum class UngroupedRule : std::uint8_t {
  any,   ///< anything: torch and DeepGEMM leave them unspecified
  zero,  ///< zeros of either sign: the caller cleared the output, and the kernel must not write
         ///< there
};
std::string_view to_string(UngroupedRule rule);
/// The rule called `name`: any or zero. Throws `Error`.
UngroupedRule find_ungrouped_rule(std::string_view name);

struct GroupOutcome {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< of the output as a matrix
  VerifyReport report;         ///< its rows count from the group's first
  /// Wrong offsets or counts that regions at the group's edges show, and another group's output.
  std::vector<Cause> findings;
};

/// Rows in no group with content that the rule forbids.
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
  std::uint64_t outputs = 0;         ///< outputs in groups
  std::uint64_t mismatches = 0;      ///< mismatches in groups
  std::vector<GroupOutcome> groups;  ///< those with rows, by their place in the output
  UngroupedRule rule = UngroupedRule::any;
  std::int64_t ungrouped = 0;  ///< rows in no group
  std::vector<UngroupedOutcome> ungrouped_wrong;
  /// For the largest group on which the check has power, or for the largest group.
  std::optional<PowerReport> power;
  std::int64_t power_group = 0;
  std::size_t power_of_check = 0;
  NonFiniteReport non_finite;
};

/// Checks `got`, which has the product's shape, group by group; gates judge each group separately.
/// If no group detects some fault of `power`, or weights, scales, bias or terms of a neighbour, the
/// verdict is `no_power`. Throws `Error` for another shape or type, and if no group has rows.
GroupedReport verify(const GroupedProduct& product, const Operand& got,
                     const VerifyOptions& options = {}, UngroupedRule rule = UngroupedRule::any);

/// The report as text, with at most three wrong groups in full.
std::string describe(const GroupedReport& report);

/// The same in few lines, see `summary` of one product: where and why of the first wrong groups.
std::string summary(const GroupedReport& report, const std::string& command = {});

}  // namespace fp8lab
