#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "product.hpp"

namespace fp8lab::python {

namespace {

nb::list list_of(const std::vector<Cause>& causes) {
  nb::list list;
  for (const Cause& cause : causes) list.append(nb::make_tuple(cause.name, cause.text));
  return list;
}

nb::dict fields_of(const GroupedReport& report) {
  nb::dict d;
  nb::list groups;
  for (const GroupOutcome& one : report.groups) {
    nb::dict group;
    group["group"] = one.group;
    group["first_row"] = one.first_row;
    group["rows"] = one.report.rows;
    group["report"] = to_dict(one.report);
    group["findings"] = list_of(one.findings);
    groups.append(group);
  }
  nb::list ungrouped;
  for (const UngroupedOutcome& one : report.ungrouped_wrong)
    ungrouped.append(nb::make_tuple(one.first_row, one.rows, one.wrong,
                                    one.cause ? one.cause->name : std::string()));
  d["verdict"] = to_string(report.verdict);
  d["bit_mismatches"] = report.mismatches;
  d["groups"] = groups;
  d["ungrouped_wrong"] = ungrouped;
  d["text"] = summary(report);
  d["details"] = describe(report);
  d["warning"] = describe(report.non_finite);
  return d;
}

nb::dict fields_of(const GroupedIdentification& result) {
  nb::dict d;
  nb::list groups;
  for (const GroupMatch& one : result.groups)
    groups.append(nb::make_tuple(one.group, one.first_row, one.matches, one.compared));
  d["explained"] = result.explained();
  d["group"] = result.group;
  d["found"] = to_dict(result.found);
  d["groups"] = groups;
  d["text"] = describe(result);
  return d;
}

}  // namespace

void bind_grouped(nb::module_& m) {
  m.def(
      "grouped_gemm",
      [](const ArrayGroups& groups, int threads) {
        std::vector<float> d;
        {
          const nb::gil_scoped_release release;
          d = compute(groups.product, threads);
        }
        return array_of(std::move(d), {groups.product.size()});
      },
      "groups"_a, "threads"_a);
  m.def(
      "warning_of_groups",
      [](const ArrayGroups& groups) { return describe(count_non_finite(groups.product)); },
      "groups"_a, WithoutGil());
  m.def(
      "verify_groups",
      [](const ArrayGroups& groups, const ProductTensor& got, std::string_view check,
         std::string_view ungrouped, int threads) {
        GroupedReport report;
        {
          const nb::gil_scoped_release release;
          VerifyOptions options;
          options.check = find_check(check);
          options.threads = threads;
          report = verify(groups.product, operand_of(got), options, find_ungrouped_rule(ungrouped));
        }
        return fields_of(report);
      },
      nb::kw_only(), "groups"_a, "got"_a, "check"_a, "ungrouped"_a, "threads"_a);
  m.def(
      "identify_groups",
      [](const ArrayGroups& groups, const ProductTensor& got, int threads,
         const std::vector<std::string>& models) {
        GroupedIdentification result;
        {
          const nb::gil_scoped_release release;
          result = identify(groups.product, operand_of(got), threads, models);
        }
        return fields_of(result);
      },
      nb::kw_only(), "groups"_a, "got"_a, "threads"_a, "models"_a);
}

}  // namespace fp8lab::python
