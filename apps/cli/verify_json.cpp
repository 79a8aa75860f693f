#include "verify_json.hpp"

#include <fmt/format.h>

#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/verify/gates.hpp"
#include "json_number.hpp"
#include "non_finite.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

json histogram(const UlpHistogram& h) {
  json bins = json::array();
  for (std::size_t i = 0; i < UlpHistogram::kBins; ++i)
    if (h.counts[i] > 0)
      bins.push_back({{"up_to", UlpHistogram::last_of(i)}, {"count", h.counts[i]}});
  return {{"bins", bins},
          {"nan", h.nan_mismatches},
          {"max", h.max_distance},
          {"toward_zero", h.toward_zero},
          {"away_from_zero", h.away_from_zero}};
}

json metrics(const VerifyReport& r) {
  const CodeComparison& c = r.comparison;
  return {{"bit_mismatches", c.bit_mismatches},
          {"mismatches", c.values.mismatches},
          {"mismatch_rate", c.values.mismatch_rate()},
          {"non_finite_mismatches", c.values.non_finite_mismatches},
          {"nan_payloads", c.nan_payloads},
          {"relative_l2", json_number(c.values.relative_l2)},
          {"sqnr_db", json_number(c.values.sqnr_db)},
          {"cosine", json_number(c.values.cosine)},
          {"calc_diff", json_number(c.values.calc_diff)},
          {"bias", json_number(c.values.mean_signed_relative)},
          {"max_absolute", json_number(c.values.max_absolute)},
          {"max_absolute_index", c.values.max_absolute_index},
          {"max_relative", json_number(c.values.max_relative)},
          {"max_relative_index", c.values.max_relative_index},
          {"ulp", histogram(c.ulp)},
          {"ulp_fp8", histogram(c.fp8)}};
}

json element(const VerifyReport& r, const ElementReport& e) {
  json result{{"which", e.which},
              {"row", e.row},
              {"column", e.column},
              {"expected", code_hex(format(r.output), e.mismatch.expected)},
              {"got", code_hex(format(r.output), e.mismatch.got)}};
  if (!e.budget) return result;
  result["exact"] = json_number(e.budget->exact);
  result["budget"] = json_number(e.budget->total());
  result["k_block"] = {e.k_begin, e.k_end};
  json models = json::object();
  for (const ModelAnswer& answer : e.models)
    models[std::string(answer.model)] = code_hex(format(r.output), answer.code);
  result["models"] = models;
  return result;
}

json region(const Region& r) {
  json result{{"rows", {r.row, r.row + r.rows}},
              {"columns", {r.column, r.column + r.columns}},
              {"mismatches", r.mismatches},
              {"content", to_string(r.content)}};
  if (r.content == RegionContent::elsewhere) result["copy_of"] = {r.from_row, r.from_column};
  if (r.diagnosis && !r.diagnosis->causes.empty())
    result["cause"] = r.diagnosis->causes.front().name;
  return result;
}

json power_json(const PowerReport& p) {
  json faults = json::array();
  for (const FaultOutcome& fault : p.faults) {
    json detected = json::object();
    for (std::size_t i = 0; i < fault.detected.size(); ++i)
      detected[std::string(p.checks[i].name())] = static_cast<bool>(fault.detected[i]);
    faults.push_back({{"fault", fault.name},
                      {"class", to_string(fault.kind)},
                      {"applies", fault.applies},
                      {"reason", fault.reason},
                      {"mismatch_rate", fault.mismatch_rate},
                      {"detected", detected}});
  }
  return {{"rows", p.rows}, {"columns", p.columns}, {"faults", faults}};
}

}  // namespace

json to_json(const VerifyReport& r) {
  json gate_results = json::object();
  for (std::size_t i = 0; i < r.gates.size(); ++i)
    gate_results[std::string(gates()[i].name)] = static_cast<bool>(r.gates[i]);
  json result{{"verdict", to_string(r.verdict)},
              {"check", r.check.name()},
              {"subject", r.subject},
              {"shape", {r.rows, r.columns}},
              {"out_dtype", format(r.output).name},
              {"metrics", metrics(r)},
              {"gates", gate_results},
              {"non_finite_counts", to_json(r.non_finite)},
              {"elements", json::array()}};
  for (const ElementReport& e : r.elements) result["elements"].push_back(element(r, e));
  result["regions"] = json::array();
  for (const Region& one : r.regions) result["regions"].push_back(region(one));
  if (r.budget)
    result["budget"] = {{"checked", r.budget->checked},
                        {"within", r.budget->within},
                        {"median", json_number(r.budget->median)}};
  if (r.scales)
    result["scales"] = {
        {"compared", r.scales->compared}, {"wrong", r.scales->wrong}, {"text", r.scales->lines}};
  if (r.power) {
    result["power"] = power_json(*r.power);
    result["power"]["has_power"] = r.power->has_power(r.power_of_check);
  }
  if (!r.diagnosis) return result;
  json causes = json::array();
  for (const Cause& cause : r.diagnosis->causes)
    causes.push_back({{"name", cause.name},
                      {"text", cause.text},
                      {"explained", cause.explained},
                      {"contradicted", cause.contradicted},
                      {"in_fp64", cause.in_fp64},
                      {"undecided", cause.undecided}});
  result["diagnosis"] = {{"mismatches", r.diagnosis->mismatches},
                         {"right", r.diagnosis->right},
                         {"tried", r.diagnosis->tried},
                         {"measured", r.diagnosis->measured},
                         {"causes", causes}};
  return result;
}

}  // namespace fp8lab::cli
