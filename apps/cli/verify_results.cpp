#include "verify_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab::cli {
namespace {

std::string hex(FormatId id, std::uint32_t code) {
  return fmt::format("0x{}", code_hex(format(id), code));
}

/// The first line of the report for people.
std::string verdict_of(const VerifyReport& report) {
  const std::string text = describe(report);
  return text.substr(0, text.find('\n')) + ".";
}

void add_cause_findings(const Diagnosis& diagnosis, std::vector<std::string>& findings) {
  for (const Cause& cause : diagnosis.causes)
    findings.push_back(fmt::format("Likely cause: {}, {}; it explains {} of {} mismatches.",
                                   cause.name, cause.text, cause.explained, diagnosis.mismatches));
  if (diagnosis.causes.empty())
    findings.push_back(
        fmt::format("None of {} known mistakes explains the mismatches.", diagnosis.tried));
  if (!diagnosis.causes.empty()) return;
  for (const std::string& line : diagnosis.measured)
    findings.push_back(fmt::format("Measured: {}.", line));
}

std::vector<std::string> findings_of(const VerifyReport& report) {
  std::vector<std::string> findings{verdict_of(report)};
  if (report.diagnosis) add_cause_findings(*report.diagnosis, findings);
  if (report.budget)
    findings.push_back(
        fmt::format("{} of {} examined mismatches lie within the error budget of the exact result.",
                    report.budget->within, report.budget->checked));
  std::vector<std::string_view> passing;
  for (std::size_t i = 0; i < report.gates.size(); ++i)
    if (report.gates[i]) passing.push_back(gates()[i].name);
  if (report.verdict == Verdict::mismatch && !passing.empty())
    findings.push_back(
        fmt::format("Shipped gates that would pass this output: {}.", fmt::join(passing, ", ")));
  if (report.power)
    if (const FaultOutcome* missed = report.power->undetected(report.power_of_check))
      findings.push_back(fmt::format("The check {} would also pass with this fault: {} ({}).",
                                     report.check.name(), missed->name, missed->text));
  return findings;
}

Table metric_table(const VerifyReport& report) {
  Table table("metrics", "Errors of the output",
              {{"metric", "", "of the output against the expected one"}, {"value", "", "value"}});
  const CodeComparison& c = report.comparison;
  const auto add = [&](const char* name, double value) {
    table.add_row({std::string(name), value});
  };
  add("outputs", static_cast<double>(c.values.count));
  add("bit_mismatches", static_cast<double>(c.bit_mismatches));
  add("relative_l2", c.values.relative_l2);
  add("sqnr_db", c.values.sqnr_db);
  add("cosine", c.values.cosine);
  add("calc_diff", c.values.calc_diff);
  add("bias", c.values.mean_signed_relative);
  add("max_absolute", c.values.max_absolute);
  add("max_relative", c.values.max_relative);
  add("max_ulp", static_cast<double>(c.ulp.max_distance));
  return table;
}

Table element_table(const VerifyReport& report) {
  Table table("elements", "Wrong elements, one per row",
              {{"which", "", "first or worst"},
               {"row", "1", "of the output"},
               {"column", "1", "of the output"},
               {"expected", "", "code"},
               {"got", "", "code"},
               {"exact", "1", "the exact result"},
               {"budget", "1", "the error that the instruction may make"}});
  for (const ElementReport& e : report.elements)
    table.add_row({std::string(e.which), e.row, e.column, hex(report.output, e.mismatch.expected),
                   hex(report.output, e.mismatch.got), e.budget ? e.budget->exact : std::nan(""),
                   e.budget ? e.budget->total() : std::nan("")});
  return table;
}

Table gate_table(const VerifyReport& report) {
  Table table("gates", "Shipped gates on this output",
              {{"gate", "", "project"},
               {"passes", "", "whether it would pass this output"},
               {"rule", "", "what it requires"},
               {"source", "", "file in which it is"}});
  for (std::size_t i = 0; i < report.gates.size(); ++i) {
    const Gate& gate = gates()[i];
    table.add_row({std::string(gate.name), static_cast<bool>(report.gates[i]),
                   std::string(gate.text), std::string(gate.source)});
  }
  return table;
}

Table fault_table(const PowerReport& power) {
  std::vector<Column> columns{{"fault", "", "what goes wrong"},
                              {"applies", "", "whether the fault applies to this problem"},
                              {"changed", "%", "of the outputs"}};
  for (const Check& check : power.checks)
    columns.push_back({std::string(check.name()), "", "whether this check detects it"});
  Table table("faults", "Known faults against each check", columns);
  for (const FaultOutcome& fault : power.faults) {
    std::vector<Cell> row{fault.name, fault.applies, 100.0 * fault.mismatch_rate};
    for (std::size_t i = 0; i < power.checks.size(); ++i)
      row.emplace_back(std::string(!fault.applies      ? ""
                                   : fault.detected[i] ? "detected"
                                                       : "missed"));
    table.add_row(std::move(row));
  }
  return table;
}

Table tile_table(const MismatchMap& map) {
  Table table(
      "tiles",
      fmt::format("Tiles of {} x {} outputs with mismatches", map.tile_rows, map.tile_columns),
      {{"row", "1", "first of the tile"},
       {"column", "1", "first of the tile"},
       {"mismatches", "1", "in the tile"}});
  for (std::int64_t i = 0; i < map.rows * map.columns; ++i)
    if (const auto count = map.counts[static_cast<std::size_t>(i)]; count > 0)
      table.add_row({i / map.columns * map.tile_rows, i % map.columns * map.tile_columns,
                     static_cast<std::int64_t>(count)});
  return table;
}

}  // namespace

HeatMap mismatch_map(const VerifyReport& report) {
  const MismatchMap& tiles = report.map;
  HeatMap map;
  map.name = "mismatches";
  map.title = fmt::format("{} of {} outputs differ; a cell is {} x {} of them",
                          report.comparison.bit_mismatches, report.comparison.values.count,
                          tiles.tile_rows, tiles.tile_columns);
  map.x_label = "column";
  map.y_label = "row";
  map.value_label = "mismatches in a cell";
  for (std::int64_t i = 0; i < tiles.columns; ++i)
    map.columns.push_back(std::to_string(i * tiles.tile_columns));
  for (std::int64_t i = tiles.rows; i-- > 0;) {
    map.rows.push_back(std::to_string(i * tiles.tile_rows));
    for (std::int64_t j = 0; j < tiles.columns; ++j)
      map.values.push_back(
          static_cast<double>(tiles.counts[static_cast<std::size_t>(i * tiles.columns + j)]));
  }
  return map;
}

Results results_of(const VerifyReport& report) {
  Results results;
  results.findings = findings_of(report);
  results.tables = {metric_table(report)};
  if (!report.elements.empty()) results.tables.push_back(element_table(report));
  if (!report.gates.empty()) results.tables.push_back(gate_table(report));
  if (report.power) results.tables.push_back(fault_table(*report.power));
  if (!report.comparison.bitwise() && !report.map.counts.empty()) {
    results.tables.push_back(tile_table(report.map));
    results.heat_maps.push_back(mismatch_map(report));
  }
  return results;
}

}  // namespace fp8lab::cli
