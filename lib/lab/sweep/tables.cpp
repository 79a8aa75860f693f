#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/column_json.hpp"
#include "lab/sweep/sweep.hpp"

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
  columns.push_back({"seed", "1", "the seed of the point, with which it can be run alone"});
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

std::vector<SweepTable> tables_of(const SweepLog& log) {
  std::map<std::string, SweepTable> tables;
  for (const TableHead* head : log.heads())
    tables.try_emplace(head->name, SweepTable{head->name, head->title, {}})
        .first->second.add(*head);
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

/// A table's file while it is written.
struct TableFile {
  SweepTable table;
  std::vector<Column> columns;  ///< the point's, then the table's
  std::ostream* out = nullptr;
  std::int64_t rows = 0;

  [[nodiscard]] std::string name() const { return table.name + ".csv"; }
  void add(const std::string& prefix, const std::string& line) {
    *out << prefix << line << '\n';
    ++rows;
  }
};

std::vector<TableFile> files_of(const SweepPlan& plan, const SweepLog& log) {
  std::vector<SweepTable> tables = tables_of(log);
  for (const SweepTable& table : tables) {
    require_file_name("table name", table.name);
    require(table.name != kFailures, "table name", "a name that no column of the sweep itself has",
            table.name);
  }
  if (log.failed_count() > 0)
    tables.push_back({kFailures, "Points that failed", {{"error", "", "its message"}}});
  std::vector<TableFile> files;
  for (SweepTable& table : tables) {
    std::vector<Column> columns = point_columns(plan, table.columns);
    columns.insert(columns.end(), table.columns.begin(), table.columns.end());
    files.push_back({std::move(table), std::move(columns), nullptr, 0});
  }
  return files;
}

/// Writes the rows of every point; each is read from the log once.
void write_rows(const SweepPlan& plan, const SweepLog& log, std::vector<TableFile>& files) {
  for (TableFile& file : files) *file.out << header_line(file.columns) << '\n';
  for (std::int64_t index = 0; index < plan.grid.size(); ++index) {
    const PointResult result = log.result(index);
    const std::string prefix = csv_line(point_cells(plan.grid.at(index)));
    for (TableFile& file : files) {
      if (file.table.name == kFailures && !result.error.empty())
        file.add(prefix, fmt::format(",{}", to_csv(result.error)));
      for (std::size_t t = 0; t < result.heads.size(); ++t)
        if (result.heads[t].name == file.table.name)
          for (const CsvRow& row : result.rows[t])
            file.add(prefix, aligned_line(file.table, result.heads[t], row));
    }
  }
}

/// Opens the files from `next` on, all at once, and writes them.
void write_files(const SweepPlan& plan, const SweepLog& log, const fs::path& folder,
                 std::vector<TableFile>& files, std::size_t next) {
  if (next == files.size()) {
    write_rows(plan, log, files);
    return;
  }
  write_file(folder / files[next].name(), [&](std::ostream& out) {
    files[next].out = &out;
    write_files(plan, log, folder, files, next + 1);
  });
}

Json json_of(const TableFile& file, const fs::path& folder) {
  return {{"name", file.table.name}, {"title", file.table.title},
          {"file", file.name()},     {"crc32", crc32_text(read_file(folder / file.name()))},
          {"rows", file.rows},       {"columns", columns_json(file.columns)}};
}

}  // namespace

std::vector<std::string> write_sweep_tables(const SweepPlan& plan, const SweepLog& log,
                                            const fs::path& folder) {
  std::vector<TableFile> table_files = files_of(plan, log);
  write_files(plan, log, folder, table_files, 0);
  if (log.failed_count() == 0) {
    std::error_code ignored;
    fs::remove(folder / (std::string(kFailures) + ".csv"), ignored);
  }
  Json tables = Json::array();
  std::vector<std::string> files;
  for (const TableFile& file : table_files) {
    tables.push_back(json_of(file, folder));
    files.push_back(file.name());
  }
  files.emplace_back("sweep.json");
  const Json json{{"schema", "fp8lab.sweep.1"},
                  {"question", read_question(plan.experiment->default_toml)},
                  {"sweep", parse_json<Json>(plan.identity(), "sweep")},
                  {"command", plan.command()},
                  {"points", plan.grid.size()},
                  {"failed", log.failed_count()},
                  {"tables", tables},
                  {"files", files}};
  write_file(folder / "sweep.json", with_own_checksum(json_text(json, 2) + "\n"));
  return files;
}

}  // namespace fp8lab
