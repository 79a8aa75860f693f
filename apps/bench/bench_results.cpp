#include "apps/bench/bench_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

struct Unit {
  std::string_view part;  ///< of the key
  std::string_view unit;
};
constexpr std::array<Unit, 9> kUnits{{{"ratio", "1"},
                                      {"spread", "1"},
                                      {"gmacs", "GMAC/s"},
                                      {"gelements", "Gelem/s"},
                                      {"gbs", "GB/s"},
                                      {"ghz", "GHz"},
                                      {"tokens_per_second", "1/s"},
                                      {"seconds", "s"},
                                      {"bytes", "B"}}};

/// The columns that say what a row is of, in this order, before its figures.
constexpr std::array<std::string_view, 6> kKeys{"name",  "recipe", "products",
                                                "model", "shape",  "data"};

std::string unit_of(const std::string& key, const json& value) {
  if (!value.is_number()) return "";
  for (const Unit& unit : kUnits)
    if (key.find(unit.part) != std::string::npos) return std::string(unit.unit);
  return "1";
}

Cell cell_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return json_text(value);
}

std::vector<std::string> keys_of(const json& row) {
  std::vector<std::string> keys;
  for (const std::string_view key : kKeys)
    if (row.contains(key)) keys.emplace_back(key);
  for (const auto& [key, value] : row.items())
    if (std::ranges::find(kKeys, key) == kKeys.end()) keys.push_back(key);
  return keys;
}

std::string words_of(std::string key) {
  std::ranges::replace(key, '_', ' ');
  return key;
}

Table table_of(const std::string& name, const json& rows) {
  const std::vector<std::string> keys = keys_of(rows.front());
  std::vector<Column> columns;
  for (const std::string& key : keys)
    columns.push_back({key, unit_of(key, rows.front()[key]), words_of(key)});
  Table table(name, fmt::format("Benchmark: {}", words_of(name)), columns);
  for (const json& row : rows) {
    std::vector<Cell> cells;
    for (const std::string& key : keys) cells.push_back(cell_of(row.at(key)));
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

Results bench_results(const json& report, const json& ceilings) {
  Results results;
  json setup = json::object();
  for (const auto& [key, value] : report.items()) {
    const bool rows = value.is_array() && !value.empty() && value.front().is_object();
    if (rows || value.is_object())
      results.tables.push_back(table_of(key, rows ? value : json::array({value})));
    else
      setup[key] = value;
  }
  results.tables.push_back(table_of("ceilings", json::array({ceilings})));
  results.tables.push_back(table_of("setup", json::array({setup})));
  results.findings = {fmt::format(
      "Measured on {}, target {}: FMA peak {:.1f} GMAC/s, stream read {:.1f} GB/s, copy "
      "{:.1f} GB/s. The kernels' bits were {}.",
      counted(ceilings["threads"].get<int>(), "thread"), ceilings["target"].get<std::string>(),
      ceilings["fma_peak_gmacs"].get<double>(), ceilings["stream_read_gbs"].get<double>(),
      ceilings["stream_copy_gbs"].get<double>(),
      report["verified"].get<bool>() ? "right" : "wrong")};
  return results;
}

}  // namespace fp8lab::cli
