#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/column_json.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/sweep/sweep.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kFailures = "failures";

/// The columns that say which point a row is of. A table may use the same name for
/// one of its own: the axis then is called `axis_<name>`.
std::vector<Column> point_columns(const SweepPlan& plan, const std::vector<Column>& own) {
  std::vector<Column> columns;
  for (const GridAxis& axis : plan.grid.axes)
    columns.push_back({axis.key, "", fmt::format("parameter {} of the sweep", axis.key)});
  columns.push_back({"repeat", "1", "which repeat of the same parameters, from 0"});
  columns.push_back({"seed", "1", "the point's seed: run it alone with --seed"});
  for (Column& column : columns)
    for (const Column& other : own)
      if (other.name == column.name) column.name = "axis_" + other.name;
  return columns;
}

std::vector<Cell> point_cells(const GridPoint& point) {
  std::vector<Cell> cells = point.coordinates;
  cells.emplace_back(point.repeat);
  // A seed has 64 bits: as text it is the same in every reader.
  cells.emplace_back(std::to_string(point.seed));
  return cells;
}

std::string header_line(const std::vector<Column>& columns) {
  std::vector<Cell> names;
  for (const Column& column : columns) names.emplace_back(column.name);
  return csv_line(names);
}

/// A table of all points: its columns are those of its points, in the order in which they come.
struct SweepTable {
  std::string name;
  std::string title;
  std::vector<Column> columns;

  void add(const TableHead& head) {
    for (const Column& column : head.columns)
      if (std::ranges::find(columns, column.name, &Column::name) == columns.end())
        columns.push_back(column);
  }
};

std::vector<SweepTable> tables_of(const SweepPlan& plan, const SweepLog& log) {
  std::map<std::string, SweepTable> tables;
  for (std::int64_t index = 0; index < plan.grid.size(); ++index)
    for (const TableHead& head : log.result(index).heads)
      tables.try_emplace(head.name, SweepTable{head.name, head.title, {}}).first->second.add(head);
  std::vector<SweepTable> list;
  for (auto& [name, table] : tables) list.push_back(std::move(table));
  return list;
}

/// The row of a point's table under the columns of the whole one; a column that the point
/// does not have stays empty.
std::string aligned_line(const SweepTable& table, const TableHead& head, const CsvRow& row) {
  std::string line;
  for (const Column& column : table.columns) {
    const auto own = std::ranges::find(head.columns, column.name, &Column::name);
    line += ',';
    if (own != head.columns.end())
      line += row[static_cast<std::size_t>(own - head.columns.begin())];
  }
  return line;
}

/// The rows of `table` that a point has, each after a comma.
std::vector<std::string> lines_of(const SweepTable& table, const PointResult& result) {
  std::vector<std::string> lines;
  for (std::size_t t = 0; t < result.heads.size(); ++t)
    if (result.heads[t].name == table.name)
      for (const CsvRow& row : result.rows[t])
        lines.push_back(aligned_line(table, result.heads[t], row));
  if (table.name == kFailures && !result.error.empty())
    lines.push_back(fmt::format(",{}", to_csv(result.error)));
  return lines;
}

Json write_table(const SweepPlan& plan, const SweepLog& log, const fs::path& folder,
                 const SweepTable& table) {
  require_file_name("table name", table.name);
  std::vector<Column> columns = point_columns(plan, table.columns);
  columns.insert(columns.end(), table.columns.begin(), table.columns.end());
  const std::string file = table.name + ".csv";
  std::int64_t rows = 0;
  write_file(folder / file, [&](std::ostream& out) {
    out << header_line(columns) << '\n';
    for (std::int64_t index = 0; index < plan.grid.size(); ++index) {
      const std::vector<std::string> lines = lines_of(table, log.result(index));
      if (lines.empty()) continue;
      const std::string prefix = csv_line(point_cells(plan.grid.at(index)));
      for (const std::string& line : lines) out << prefix << line << '\n';
      rows += static_cast<std::int64_t>(lines.size());
    }
  });
  return {{"name", table.name},
          {"title", table.title},
          {"file", file},
          {"rows", rows},
          {"columns", columns_json(columns)}};
}

}  // namespace

std::vector<std::string> write_sweep_tables(const SweepPlan& plan, const SweepLog& log,
                                            const fs::path& folder) {
  Json tables = Json::array();
  for (const SweepTable& table : tables_of(plan, log)) {
    require(table.name != kFailures, "table name", "another name than that of the sweep's own",
            table.name);
    tables.push_back(write_table(plan, log, folder, table));
  }
  const SweepTable failures{kFailures, "Points that gave an error", {{"error", "", "its message"}}};
  const Json failed = write_table(plan, log, folder, failures);
  const std::int64_t failed_points = failed["rows"];
  if (failed_points > 0) {
    tables.push_back(failed);
  } else {
    std::error_code ignored;
    fs::remove(folder / failed["file"].get<std::string>(), ignored);
  }
  std::vector<std::string> files;
  for (const Json& table : tables) files.push_back(table["file"]);
  files.emplace_back("sweep.json");
  const Json json{{"schema", "fp8lab.sweep.1"},
                  {"sweep", Json::parse(plan.identity())},
                  {"command", plan.command()},
                  {"points", plan.grid.size()},
                  {"failed", failed_points},
                  {"tables", tables},
                  {"files", files}};
  write_file(folder / "sweep.json", json.dump(2) + "\n");
  return files;
}

}  // namespace fp8lab
