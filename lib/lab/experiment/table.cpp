#include "lab/experiment/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/core/short_number.hpp"
#include "fp8lab/io/csv.hpp"

namespace fp8lab {
namespace {

std::string csv_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  // A column of reals stays one to readers that guess, whatever its values are.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string for_people(const Cell& cell) {
  if (const double* real = std::get_if<double>(&cell)) return short_number(*real);
  if (const std::string* text = std::get_if<std::string>(&cell)) return printable(*text);
  return to_csv(cell);
}

/// Code points: the terminal columns of the letters and signs that tables hold.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string heading(const Column& column) {
  // `storage_bits [bits]` says it twice.
  const bool has_unit =
      !column.unit.empty() && column.unit != "1" && !column.name.ends_with(column.unit);
  return has_unit ? fmt::format("{} [{}]", column.name, column.unit) : column.name;
}

struct TextColumn {
  std::vector<std::string> cells;  ///< the heading first
  std::size_t columns = 0;
  bool right = true;
};

}  // namespace

std::string to_csv(const Cell& cell) {
  const FloatEnvironment environment;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&cell)) return csv_real(*real);
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "true" : "false";
  return csv_cell(std::get<std::string>(cell));
}

std::string csv_line(const std::vector<Cell>& cells) {
  std::string line;
  for (const Cell& cell : cells) {
    if (&cell != cells.data()) line += ',';
    line += to_csv(cell);
  }
  return line;
}

Table::Table(std::string name, std::string title, std::vector<Column> columns)
    : name_(std::move(name)), title_(std::move(title)), columns_(std::move(columns)) {
  for (auto column = columns_.begin(); column != columns_.end(); ++column) {
    const bool again = std::any_of(columns_.begin(), column,
                                   [&](const Column& other) { return other.name == column->name; });
    require(!again, fmt::format("table {}", name_), "unique column names", column->name);
  }
}

void Table::add_row(std::vector<Cell> cells) {
  if (cells.size() != columns_.size())
    throw Error(fmt::format("table {}: row", name_), counted(columns_.size(), "cell"),
                std::to_string(cells.size()));
  rows_.push_back(std::move(cells));
}

std::string Table::csv() const {
  std::string out;
  for (const Column& column : columns_) {
    if (&column != columns_.data()) out += ',';
    out += csv_cell(column.name);
  }
  out += '\n';
  for (const std::vector<Cell>& row : rows_) out += csv_line(row) + '\n';
  return out;
}

std::string Table::text(std::size_t max_rows) const {
  const std::size_t shown = max_rows == 0 ? rows_.size() : std::min(max_rows, rows_.size());
  std::vector<TextColumn> columns;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    TextColumn column;
    column.cells.push_back(heading(columns_[c]));
    for (std::size_t r = 0; r < shown; ++r) {
      column.cells.push_back(for_people(rows_[r][c]));
      column.right = column.right && !std::holds_alternative<std::string>(rows_[r][c]);
    }
    for (const std::string& cell : column.cells)
      column.columns = std::max(column.columns, width(cell));
    columns.push_back(std::move(column));
  }
  std::string out = title_.empty() ? "" : title_ + '\n';
  for (std::size_t r = 0; r <= shown; ++r) {
    std::string line;
    for (const TextColumn& column : columns) {
      const std::string padding(column.columns - width(column.cells[r]), ' ');
      line += "  ";
      line += column.right ? padding + column.cells[r] : column.cells[r] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  if (shown < rows_.size()) out += fmt::format("  ... {} more rows\n", rows_.size() - shown);
  return out;
}

}  // namespace fp8lab
