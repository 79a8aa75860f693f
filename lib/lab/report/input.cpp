#include "lab/report/input.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/csv.hpp"
#include "lab/report/json_node.hpp"
#include "lab/report/plots.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kRunFile = "result.json";
constexpr const char* kSweepFile = "sweep.json";

void require_checksum(const fs::path& path, std::string_view bytes, const std::string& expected) {
  const std::string got = crc32_text(bytes);
  require(got == expected, path.string() + ": crc32",
          fmt::format("{} as listed (the file was changed, or another run wrote it: run again)",
                      expected),
          got);
}

StoredTable read_table(const fs::path& folder, const JsonNode& node) {
  StoredTable table;
  table.title = node["title"].text();
  table.file = node["file"].file_name();
  for (const JsonNode& column : node["columns"].elements())
    table.columns.push_back(
        {column["name"].text(), column["unit"].text(), column["description"].text()});
  const fs::path path = folder / table.file;
  table.csv = read_file(path);
  // Folders written before tables and plots had checksums are read as they are.
  if (node.has("crc32")) require_checksum(path, table.csv, node["crc32"].text());
  try {
    table.rows = parse_csv(table.csv);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  require(!table.rows.empty(), path.string(), "a heading and its rows", "an empty file");
  const std::size_t rows = table.rows.size() - 1;
  const std::size_t columns = table.rows.front().size();
  if (rows != node["rows"].count() || columns != table.columns.size())
    throw Error(
        path.string(),
        fmt::format("{} rows of {} columns, as listed", node["rows"].count(), table.columns.size()),
        fmt::format("{} rows of {}", rows, columns));
  table.rows.erase(table.rows.begin());
  return table;
}

StoredPlot read_plot(const fs::path& folder, const JsonNode& node) {
  StoredPlot plot{node["name"].text(), node["title"].text(), "", ""};
  const std::vector<JsonNode> files = node["files"].elements();
  const std::vector<JsonNode> checksums =
      node.has("crc32") ? node["crc32"].elements() : std::vector<JsonNode>{};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string file = files[i].file_name();
    if (!file.ends_with(".svg") && !file.ends_with(".json")) continue;
    const std::string text = read_file(folder / file);
    if (i < checksums.size()) require_checksum(folder / file, text, checksums[i].text());
    (file.ends_with(".svg") ? plot.svg : plot.json) = text;
  }
  return plot;
}

std::vector<Headline::Curve> read_curves(const JsonNode& node) {
  std::vector<Headline::Curve> curves;
  for (const JsonNode& curve : node.elements())
    curves.push_back({curve["label"].text(), curve["name"].text()});
  return curves;
}

Headline read_headline(const JsonNode& node) {
  return {
      .title = node["title"].text(),
      .sentence = node["sentence"].text(),
      .plot = node["plot"].text(),
      .advice = node["advice"].text(),
      .measure = node["measure"].text(),
      .failing = node["failing"].text(),
      .mitigation = node["mitigation"].text(),
      .mitigated = node["mitigated"].text(),
      .curves = node.has("curves") ? read_curves(node["curves"]) : std::vector<Headline::Curve>{}};
}

StoredPairs facts_of(const JsonNode& root) {
  StoredPairs facts{{"seed", std::to_string(root["seed"].count())},
                    {"version", root["version"].text()}};
  if (root.has("git")) facts.emplace_back("git", root["git"].text());
  for (const auto& member : root["machine"].members()) facts.push_back(member);
  facts.emplace_back("threads", std::to_string(root["threads"].count()));
  facts.emplace_back("started", root["started"].text());
  facts.emplace_back("duration", fmt::format("{:.2f} s", root["duration_seconds"].real()));
  return facts;
}

Json read_json(const fs::path& path) {
  const std::string text = read_file(path);
  require_own_checksum(text, path.string());
  return parse_json<Json>(text, path.string());
}

void require_schema(const JsonNode& root, const fs::path& path, std::string_view expected) {
  const std::string schema = root["schema"].text();
  require(schema == expected, path.string() + ": schema", expected, "'" + schema + "'");
}

StoredRun read_experiment(const fs::path& folder) {
  const fs::path path = folder / kRunFile;
  const Json json = read_json(path);
  const JsonNode root(json, path.string());
  require_schema(root, path, "fp8lab.result.1");
  StoredRun run;
  run.experiment = root["experiment"].text();
  run.question = root["question"].text();
  run.quick = root["quick"].flag();
  run.command = root["command"].text();
  for (const JsonNode& finding : root["findings"].elements())
    run.findings.push_back(finding.text());
  if (root.has("headline")) run.headline = read_headline(root["headline"]);
  run.parameters = root["parameters"].members();
  run.facts = facts_of(root);
  for (const JsonNode& table : root["tables"].elements())
    run.tables.push_back(read_table(folder, table));
  for (const JsonNode& plot : root["plots"].elements())
    run.plots.push_back(read_plot(folder, plot));
  if (root.has("plots_note")) run.plots_note = root["plots_note"].text();
  return run;
}

/// What a sweep ran, in words: its points, and those that failed.
std::string points_finding(const StoredRun& run, const std::vector<std::string>& axes,
                           std::uint64_t points, std::uint64_t repeats, std::uint64_t failed) {
  std::string text = fmt::format("{} points of {}", points, run.experiment);
  if (!axes.empty()) text += fmt::format(" over {}", fmt::join(axes, " x "));
  if (repeats > 1) text += fmt::format(", {} repeats of each", repeats);
  if (failed == 0) return text + ": all ran.";
  const auto table = std::ranges::find(run.tables, "failures.csv", &StoredTable::file);
  const std::string first =
      table == run.tables.end() || table->rows.empty() ? "" : table->rows.front().back();
  return fmt::format("{}: {} failed (failures.csv), the first with \"{}\".", text, failed, first);
}

StoredRun read_sweep(const fs::path& folder) {
  const fs::path path = folder / kSweepFile;
  const Json json = read_json(path);
  const JsonNode root(json, path.string());
  require_schema(root, path, "fp8lab.sweep.1");
  const JsonNode plan = root["sweep"];
  StoredRun run;
  run.sweep = true;
  run.experiment = plan["experiment"].text();
  if (root.has("question")) run.question = root["question"].text();
  run.quick = plan["quick"].flag();
  run.command = root["command"].text();
  run.parameters = plan["parameters"].members();
  std::vector<std::string> axes;
  for (const JsonNode& axis : plan["axes"].elements()) {
    const std::string text = axis.text();
    const std::size_t equals = std::min(text.find('='), text.size());
    axes.push_back(text.substr(0, equals));
    run.facts.emplace_back("axis " + axes.back(), text.substr(std::min(equals + 1, text.size())));
  }
  const std::uint64_t repeats = plan["repeats"].count();
  run.facts.emplace_back("repeats", std::to_string(repeats));
  run.facts.emplace_back("seed", std::to_string(plan["seed"].count()));
  run.facts.emplace_back("version", plan["version"].text());
  for (const JsonNode& node : root["tables"].elements()) {
    StoredTable table = read_table(folder, node);
    table.point_columns = axes.size() + 2;
    require(table.columns.size() > table.point_columns, path.string() + ": " + table.file,
            fmt::format("columns after those of {} axes, repeat and seed", axes.size()),
            counted(table.columns.size(), "column"));
    run.tables.push_back(std::move(table));
  }
  run.findings.push_back(
      points_finding(run, axes, root["points"].count(), repeats, root["failed"].count()));
  add_sweep_plots(run);
  return run;
}

}  // namespace

std::optional<double> number_in(std::string_view cell) {
  const FloatEnvironment environment;
  double value = 0.0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (cell.empty() || error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

bool is_numeric(const StoredTable& table, std::size_t column) {
  bool any = false;
  for (const auto& row : table.rows) {
    if (row[column].empty()) continue;
    if (!number_in(row[column])) return false;
    any = true;
  }
  return any;
}

bool is_spread(const StoredTable& table, std::size_t column) {
  const std::string& name = table.columns[column].name;
  if (!name.ends_with("_min") && !name.ends_with("_max")) return false;
  return std::ranges::find(table.columns, name.substr(0, name.size() - 4), &Column::name) !=
         table.columns.end();
}

std::vector<std::string> row_key(const StoredTable& table, const std::vector<std::string>& row,
                                 std::size_t own) {
  // The seed is a hash of the rest.
  const std::size_t axes = std::max<std::size_t>(table.point_columns, 1) - 1;
  std::vector<std::string> key(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(axes));
  const auto first = row.begin() + static_cast<std::ptrdiff_t>(table.point_columns);
  key.insert(key.end(), first, first + static_cast<std::ptrdiff_t>(own));
  return key;
}

std::optional<std::size_t> own_keys(const StoredTable& table) {
  for (std::size_t own = 0; own <= table.columns.size() - table.point_columns; ++own) {
    std::set<std::vector<std::string>> keys;
    const bool unique = std::ranges::all_of(
        table.rows, [&](const auto& row) { return keys.insert(row_key(table, row, own)).second; });
    if (unique) return own;
  }
  return std::nullopt;
}

bool holds_results(const fs::path& folder) {
  return fs::exists(folder / kRunFile) || fs::exists(folder / kSweepFile);
}

StoredRun read_run(const fs::path& folder) {
  const bool sweep = !fs::exists(folder / kRunFile) && fs::exists(folder / kSweepFile);
  StoredRun run = sweep ? read_sweep(folder) : read_experiment(folder);
  run.folder = folder.string();
  return run;
}

}  // namespace fp8lab
