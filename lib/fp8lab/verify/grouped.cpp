#include "fp8lab/verify/grouped.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/tensors/slices.hpp"
#include "fp8lab/verify/group_mistakes.hpp"
#include "fp8lab/verify/judge.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostPower = 8;  // groups on which power is sought

std::size_t width_of(FormatId id) { return static_cast<std::size_t>(format(id).bytes()); }

TensorView require_output(const GroupedProduct& product, const Operand& got,
                          std::shared_ptr<const void>& owner) {
  const TensorView& tensor = got.tensor();
  const ElementType expected = element_type_of(product.output.format);
  const bool is_codes = tensor.type == ElementType::u8 && element_bytes(expected) == 1;
  require(tensor.type == expected || is_codes, got.name(),
          fmt::format("{} elements; give their format with {}", to_string(expected),
                      argument("out_dtype")),
          to_string(tensor.type));
  require(tensor.shape == product.shape, got.name(),
          fmt::format("shape {}", shape_text(product.shape)), shape_text(tensor.shape));
  HeldTensor dense = row_major(tensor);
  owner = std::move(dense.owner);
  return dense.view;
}

class Verifier {
 public:
  Verifier(const GroupedProduct& product, const Operand& got, const VerifyOptions& options,
           UngroupedRule rule)
      : product_(product), name_(got.name()), options_(options) {
    const TensorView dense = require_output(product, got, owner_);
    got_ = dense.bytes;
    report_.check = options.check;
    report_.kind = product.groups.kind;
    report_.output = product.output.format;
    report_.shape = product.shape;
    report_.count = product.count;
    report_.rule = rule;
  }

  GroupedReport run() {
    bool right = true;
    for (std::size_t i = 0; i < product_.parts.size(); ++i) {
      if (product_.parts[i].product.size() == 0) continue;
      verify_part(i);
      right = right && report_.groups.back().report.verdict != Verdict::mismatch;
    }
    require(!report_.groups.empty(), to_string(report_.kind), "a group with outputs", "none");
    look_at_rest();
    right = right && report_.ungrouped_wrong.empty();
    report_.verdict = right ? Verdict::pass : Verdict::mismatch;
    if ((right || options_.fault_matrix) && options_.judge_power) judge_power(right);
    report_.non_finite = count_non_finite(product_);
    report_.non_finite.push_back({name_, count_non_finite(report_.output, got_)});
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::span<const std::byte> rows(std::int64_t first, std::int64_t count) const {
    const std::size_t row =
        static_cast<std::size_t>(product_.columns) * width_of(product_.output.format);
    return got_.subspan(static_cast<std::size_t>(first) * row,
                        static_cast<std::size_t>(count) * row);
  }

  void verify_part(std::size_t index) {
    const GroupProduct& part = product_.parts[index];
    const std::span<const std::byte> codes = rows(part.first_row, part.product.rows());
    const Operand got{name_,
                      {element_type_of(product_.output.format),
                       {part.product.rows(), part.product.columns()},
                       codes,
                       false},
                      owner_};
    VerifyOptions options = options_;
    options.judge_power = false;
    options.fault_matrix = false;
    options.more = [&] { return group_mistakes(product_, index); };
    VerifyReport report = verify(part.product, got, options);
    report_.outputs += report.comparison.values.count;
    report_.mismatches += report.comparison.bit_mismatches;
    report_.groups.push_back({part.group, part.first_row, std::move(report), {}});
    find(report_.groups.back(), index, codes);
  }

  /// What the regions of a wrong part say together with its place among the others.
  void find(GroupOutcome& outcome, std::size_t index, std::span<const std::byte> codes) const {
    if (outcome.report.verdict != Verdict::mismatch) return;
    for (const Region& region : outcome.report.regions) {
      if (region.columns != product_.columns || region.rows == outcome.report.rows) continue;
      const bool first = region.row == 0;
      const bool last = region.row + region.rows == outcome.report.rows;
      if (first || last) at_edge(outcome, region, first);
    }
    find_whose(outcome, index, codes);
  }

  static void at_edge(GroupOutcome& outcome, const Region& region, bool first) {
    const std::string rows = region.rows == 1 ? "row" : fmt::format("{} rows", region.rows);
    const bool empty = region.content == RegionContent::zeros ||
                       region.content == RegionContent::unrelated ||
                       region.content == RegionContent::constant;
    if (region.content == RegionContent::nan && !first) {
      outcome.findings.push_back(
          {"last_rows_nan",
           fmt::format("the last {} of group {} {} NaN: not written, or spoilt by NaN in rows of "
                       "padding that share their tile",
                       rows, outcome.group, region.rows == 1 ? "is" : "are"),
           region.mismatches, 0});
      return;
    }
    if (empty && !first)
      outcome.findings.push_back({"rows_not_written",
                                  fmt::format("the last {} of group {} not written: its end or its "
                                              "count is {} too small",
                                              rows, outcome.group, region.rows),
                                  region.mismatches, 0});
    if (!region.diagnosis || region.diagnosis->causes.empty()) return;
    const std::string& cause = region.diagnosis->causes.front().name;
    if (first && cause == "weight_of_previous_group")
      outcome.findings.push_back({"offset_late",
                                  fmt::format("the first {} of group {} went to the group before: "
                                              "its offset is {} too large",
                                              rows, outcome.group, region.rows),
                                  region.mismatches, 0});
    if (!first && cause == "weight_of_next_group")
      outcome.findings.push_back(
          {"offset_early",
           fmt::format(
               "the last {} of group {} went to the next group, whose offset is {} too small", rows,
               outcome.group, region.rows),
           region.mismatches, 0});
  }

  /// Another group's right output in place of this one's.
  void find_whose(GroupOutcome& outcome, std::size_t index,
                  std::span<const std::byte> codes) const {
    const GroupProduct& own = product_.parts[index];
    const Sample sample{spread(own.product.rows(), 4), spread(product_.columns, 16)};
    const FormatId id = product_.output.format;
    for (const GroupProduct& other : product_.parts) {
      if (&other == &own || other.product.rows() < own.product.rows()) continue;
      const std::vector<std::uint32_t> right =
          code_words(id, cast_output(compute(take(other.product, sample), 1), product_.output, 1));
      std::uint64_t same = 0;
      std::size_t at = 0;
      for (const std::int64_t row : sample.rows)
        for (const std::int64_t column : sample.columns)
          same += code_at(id, codes, static_cast<std::size_t>(row * product_.columns + column)) ==
                          right[at++]
                      ? 1
                      : 0;
      if (same < right.size()) continue;
      outcome.findings.push_back(
          {"output_of_another_group", fmt::format("group {}'s output", other.group), same, 0});
      return;
    }
  }

  void look_at_rest() {
    for (const UngroupedRows& rest : product_.rest) {
      report_.ungrouped += rest.rows;
      if (report_.rule == UngroupedRule::any) continue;
      const std::span<const std::byte> codes = rows(rest.first_row, rest.rows);
      UngroupedOutcome outcome{rest.first_row, rest.rows, 0, {}};
      const std::vector<std::uint32_t> words = code_words(product_.output.format, codes);
      const Format& f = format(product_.output.format);
      for (const std::uint32_t word : words)
        outcome.wrong += unpack(f, word).value_class == ValueClass::zero ? 0 : 1;
      if (outcome.wrong == 0) continue;
      if (rest.product && is_product(*rest.product, words))
        outcome.cause = Cause{
            "ungrouped_rows_written",
            fmt::format("the results for these rows with group {}'s weights: rows are not masked",
                        rest.group),
            outcome.wrong, 0};
      report_.ungrouped_wrong.push_back(std::move(outcome));
    }
  }

  [[nodiscard]] bool is_product(const Product& product,
                                const std::vector<std::uint32_t>& words) const {
    const Sample sample{spread(product.rows(), 8), spread(product.columns(), 32)};
    const std::vector<std::uint32_t> right = code_words(
        product_.output.format, cast_output(compute(take(product, sample), 1), product_.output, 1));
    std::size_t at = 0;
    for (const std::int64_t row : sample.rows)
      for (const std::int64_t column : sample.columns)
        if (words[static_cast<std::size_t>(row * product_.columns + column)] != right[at++])
          return false;
    return true;
  }

  void judge_power(bool right) {
    std::vector<std::size_t> order(product_.parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
      return product_.parts[x].product.size() > product_.parts[y].product.size();
    });
    order.resize(std::min(order.size(), kMostPower));
    const std::vector<Check> checks =
        options_.fault_matrix ? all_checks() : std::vector<Check>{options_.check};
    for (const std::size_t i : order) {
      const GroupProduct& part = product_.parts[i];
      if (part.product.size() == 0) continue;
      PowerReport power =
          fp8lab::power(part.product, checks, options_.threads, group_mistakes(product_, i));
      std::size_t own = 0;
      for (std::size_t c = 0; c < checks.size(); ++c)
        if (checks[c].name() == options_.check.name()) own = c;
      const bool has = power.has_power(own);
      if (report_.power && !has) continue;
      report_.power = std::move(power);
      report_.power_group = part.group;
      report_.power_of_check = own;
      if (has) return;
    }
    if (right) report_.verdict = Verdict::no_power;
  }

  const GroupedProduct& product_;
  std::string name_;
  VerifyOptions options_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> got_;
  GroupedReport report_;
};

}  // namespace

std::string_view to_string(UngroupedRule rule) {
  return rule == UngroupedRule::any ? "any" : "zero";
}

UngroupedRule find_ungrouped_rule(std::string_view name) {
  if (name == "any") return UngroupedRule::any;
  require(name == "zero", "ungrouped", "any or zero", fmt::format("'{}'", name));
  return UngroupedRule::zero;
}

GroupedReport verify(const GroupedProduct& product, const Operand& got,
                     const VerifyOptions& options, UngroupedRule rule) {
  const FloatEnvironment environment;
  return Verifier(product, got, options, rule).run();
}

}  // namespace fp8lab
