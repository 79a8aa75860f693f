#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/verify/grouped.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostInFull = 3;

std::string range(std::int64_t first, std::int64_t count) {
  if (count == 1) return fmt::format("row {}", first);
  return fmt::format("rows {}-{}", first, first + count - 1);
}

std::string headline(const GroupedReport& r, std::size_t wrong) {
  std::string text = fmt::format("{}: ", to_string(r.verdict));
  if (r.mismatches == 0)
    text +=
        fmt::format("all {} outputs of {} groups have the golden bits", r.outputs, r.groups.size());
  else
    text += fmt::format("{} of {} outputs differ in bits ({:.4g} %), in {} of {} groups",
                        r.mismatches, r.outputs,
                        100.0 * static_cast<double>(r.mismatches) / static_cast<double>(r.outputs),
                        wrong, r.groups.size());
  return text + fmt::format(" [{}] {}, {}, against {}; check: {}\n", fmt::join(r.shape, ", "),
                            format(r.output).name, to_string(r.kind),
                            printable(r.groups.front().report.subject), r.check.name());
}

std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    result += "  " + text.substr(at, end - at) + '\n';
    at = end + 1;
  }
  return result;
}

std::string best_cause(const GroupOutcome& group) {
  if (!group.findings.empty()) return group.findings.front().name;
  const auto& diagnosis = group.report.diagnosis;
  if (diagnosis && !diagnosis->causes.empty()) return diagnosis->causes.front().name;
  for (const Region& region : group.report.regions)
    if (region.diagnosis && !region.diagnosis->causes.empty())
      return region.diagnosis->causes.front().name;
  return "no known mistake";
}

std::string group_text(const GroupOutcome& group, bool in_full) {
  const VerifyReport& report = group.report;
  std::string text = fmt::format("  group {} ({} of the output): ", group.group,
                                 range(group.first_row, report.rows));
  if (!in_full)
    return text + fmt::format("{} of {} differ; {}\n", report.comparison.bit_mismatches,
                              report.comparison.values.count, best_cause(group));
  std::string lines = describe(report);
  for (const Cause& finding : group.findings)
    lines += fmt::format("  group {}: {}: {}\n", group.group, finding.name, finding.text);
  return text + "\n" + indented(lines);
}

std::string ungrouped_text(const GroupedReport& r) {
  if (r.ungrouped == 0) return "";
  if (r.rule == UngroupedRule::any)
    return fmt::format(
        "  {} rows are in no group and were not compared (an option can require zeros)\n",
        r.ungrouped);
  if (r.ungrouped_wrong.empty())
    return fmt::format("  {} rows are in no group, all zero\n", r.ungrouped);
  std::string text;
  for (const UngroupedOutcome& one : r.ungrouped_wrong) {
    text += fmt::format("  {}, in no group: {} elements are not zero",
                        range(one.first_row, one.rows), one.wrong);
    if (one.cause) text += fmt::format("; cause: {}: {}", one.cause->name, one.cause->text);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string describe(const GroupedReport& r) {
  const FloatEnvironment environment;
  const auto is_wrong = [](const GroupOutcome& group) {
    return group.report.verdict == Verdict::mismatch || !group.report.comparison.bitwise();
  };
  const auto wrong = static_cast<std::size_t>(std::ranges::count_if(r.groups, is_wrong));
  std::string text = headline(r, wrong);
  std::size_t shown = 0;
  for (const GroupOutcome& group : r.groups)
    if (is_wrong(group)) text += group_text(group, shown++ < kMostInFull);
  text += ungrouped_text(r);
  if (r.power) {
    text += fmt::format("  on group {}:\n", r.power_group);
    text += describe(*r.power, r.power_of_check);
  }
  return text;
}

std::string summary(const GroupedReport& r, const std::string& command) {
  constexpr std::size_t kMostGroups = 12;
  const FloatEnvironment environment;
  const auto is_wrong = [](const GroupOutcome& group) {
    return group.report.verdict == Verdict::mismatch || !group.report.comparison.bitwise();
  };
  const auto wrong = static_cast<std::size_t>(std::ranges::count_if(r.groups, is_wrong));
  if (wrong == 0) return describe(r);
  std::string text = headline(r, wrong);
  std::size_t shown = 0;
  for (const GroupOutcome& group : r.groups) {
    if (!is_wrong(group) || shown == kMostGroups) continue;
    if (shown++ > 0) {
      text += group_text(group, false);
      continue;
    }
    std::string lines = summary(group.report);
    for (const Cause& finding : group.findings)
      lines += fmt::format("cause: {}: {}\n", finding.name, finding.text);
    text += fmt::format("  group {} ({} of the output):\n", group.group,
                        range(group.first_row, group.report.rows)) +
            indented(lines);
  }
  if (wrong > kMostGroups) text += fmt::format("  and {} more groups\n", wrong - kMostGroups);
  text += ungrouped_text(r);
  if (!command.empty()) text += "next:  " + command + '\n';
  return text;
}

}  // namespace fp8lab
