#include "grouped.hpp"

#include "json_number.hpp"
#include "non_finite.hpp"
#include "verify_json.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

json to_json(const Cause& cause) { return {{"name", cause.name}, {"text", cause.text}}; }

}  // namespace

json to_json(const GroupedProduct& product) {
  json groups = json::array();
  for (const GroupProduct& part : product.parts)
    groups.push_back({{"group", part.group},
                      {"rows", {part.first_row, part.first_row + part.product.rows()}},
                      {"k", part.product.problem.a.k}});
  std::int64_t ungrouped = 0;
  for (const UngroupedRows& rest : product.rest) ungrouped += rest.rows;
  return {{"kind", to_string(product.groups.kind)},
          {"count", product.count},
          {"parts", groups},
          {"ungrouped_rows", ungrouped}};
}

json to_json(const GroupedReport& r) {
  json groups = json::array();
  for (const GroupOutcome& one : r.groups) {
    json group{{"group", one.group},
               {"rows", {one.first_row, one.first_row + one.report.rows}},
               {"report", to_json(one.report)},
               {"findings", json::array()}};
    for (const Cause& finding : one.findings) group["findings"].push_back(to_json(finding));
    groups.push_back(std::move(group));
  }
  json result{{"verdict", to_string(r.verdict)},
              {"check", r.check.name()},
              {"kind", to_string(r.kind)},
              {"shape", r.shape},
              {"out_dtype", format(r.output).name},
              {"outputs", r.outputs},
              {"bit_mismatches", r.mismatches},
              {"groups", groups},
              {"ungrouped", {{"rows", r.ungrouped}, {"rule", to_string(r.rule)}}},
              {"non_finite_counts", to_json(r.non_finite)}};
  json wrong = json::array();
  for (const UngroupedOutcome& one : r.ungrouped_wrong) {
    wrong.push_back({{"rows", {one.first_row, one.first_row + one.rows}}, {"wrong", one.wrong}});
    if (one.cause) wrong.back()["cause"] = to_json(*one.cause);
  }
  result["ungrouped"]["wrong"] = wrong;
  if (r.power)
    result["power"] = {{"group", r.power_group},
                       {"has_power", r.power->has_power(r.power_of_check)}};
  return result;
}

}  // namespace fp8lab::cli
