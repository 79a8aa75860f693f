#pragma once
// A run's folder read back: what result_files wrote, checked field by field.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/experiment/table.hpp"

namespace fp8lab {

struct StoredTable {
  std::string title;
  std::string file;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< cells as CSV holds them, without quotes
};

struct StoredPlot {
  std::string name;
  std::string title;
  std::string svg;  ///< the picture's text; empty where none was drawn
};

/// Pairs are (name, value) for people, in the order of result.json.
struct StoredRun {
  std::string experiment;
  std::string question;
  bool quick = false;
  std::string command;
  std::vector<std::string> findings;
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<std::pair<std::string, std::string>> facts;  ///< seed, version, machine, time
  std::vector<StoredTable> tables;
  std::vector<StoredPlot> plots;
  std::string plots_note;
};

/// Reads a run's folder. Throws `Error` that names the file and the reason.
StoredRun read_run(const std::filesystem::path& folder);

/// Reads the text that `Table::csv` writes: the heading, then the rows. Throws
/// `Error` for an open quote or a row of another length than the first.
std::vector<std::vector<std::string>> parse_csv(std::string_view text);

}  // namespace fp8lab
