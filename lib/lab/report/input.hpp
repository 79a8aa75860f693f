#pragma once
// The folders of runs and sweeps read back: what result_files and the sweep wrote, checked field by
// field.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab {

struct StoredTable {
  std::string title;
  std::string file;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< cells as CSV holds them, without quotes
  std::string csv;                             ///< the file's bytes
  /// Of a sweep's table: its first columns, which say which point a row is of (the axes, repeat,
  /// seed).
  std::size_t point_columns = 0;
};

struct StoredPlot {
  std::string name;
  std::string title;
  std::string svg;   ///< the picture's text; empty where none was drawn
  std::string json;  ///< `plot_json` (an older folder: other data); empty where it was not kept
};

/// Pairs are (name, value) for people, in the order of the file.
using StoredPairs = std::vector<std::pair<std::string, std::string>>;

/// A run of one experiment, or a sweep of one.
struct StoredRun {
  std::string folder;  ///< as it was named by the caller
  std::string experiment;
  std::string question;
  bool quick = false;
  bool sweep = false;
  std::string command;
  std::vector<std::string> findings;
  std::optional<Headline> headline;
  StoredPairs parameters;
  StoredPairs facts;  ///< seed, version, machine, time
  std::vector<StoredTable> tables;
  std::vector<StoredPlot> plots;
  std::string plots_note;
};

/// Whether a folder holds a run or a finished sweep (result.json or sweep.json).
bool holds_results(const std::filesystem::path& folder);

/// Reads the folder of a run or of a sweep. A sweep's findings and plots are made from its tables
/// (plots.hpp). Throws `Error` that names the file and the reason.
StoredRun read_run(const std::filesystem::path& folder);

/// The number that a cell holds; nothing for a label or an empty cell.
std::optional<double> number_in(std::string_view cell);

/// Whether a column holds numbers: at least one, and nothing else but empty cells.
bool is_numeric(const StoredTable& table, std::size_t column);

/// Whether a column is the spread of another: `error_min` and `error_max` beside `error`.
bool is_spread(const StoredTable& table, std::size_t column);

/// The cells that say which row this is: of a sweep's point its axes and repeat, then the first
/// `own` of the table's own columns.
std::vector<std::string> row_key(const StoredTable& table, const std::vector<std::string>& row,
                                 std::size_t own);

/// The least `own` for which `row_key` tells all rows apart; nothing if none does. Tidy tables
/// name what a row is of before what was measured.
std::optional<std::size_t> own_keys(const StoredTable& table);

}  // namespace fp8lab
