#include "fitted_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <variant>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/core/short_number.hpp"
#include "lab/plots/text.hpp"
#include "terminal.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::size_t kGap = 2;        ///< blanks between columns
constexpr std::size_t kLeastText = 6;  ///< columns that a text is squeezed into

std::string text_of(const Cell& cell) {
  if (const double* real = std::get_if<double>(&cell)) return short_number(*real);
  if (const std::string* text = std::get_if<std::string>(&cell)) return printable(*text);
  return to_csv(cell);
}

std::size_t index_of(const Table& table, const std::string& name) {
  const auto& columns = table.columns();
  const auto found = std::ranges::find(columns, name, &Column::name);
  require(found != columns.end(), "column", "one of the table", name);
  return static_cast<std::size_t>(found - columns.begin());
}

/// One column as texts, the heading first.
struct TextColumn {
  std::vector<std::string> cells;
  bool number = true;
  std::size_t width = 0;

  TextColumn(const Table& table, const ShownColumn& shown) : cells{shown.heading} {
    const std::size_t index = index_of(table, shown.name);
    for (const auto& row : table.rows()) {
      cells.push_back(text_of(row[index]));
      number = number && !std::holds_alternative<std::string>(row[index]);
    }
    width = widest_of(cells);
  }
};

/// Takes columns from the widest text until the table fits.
void squeeze(std::vector<TextColumn>& columns, std::size_t room) {
  const auto whole = [&] {
    return std::accumulate(columns.begin(), columns.end(), kGap * columns.size(),
                           [](std::size_t sum, const TextColumn& c) { return sum + c.width; });
  };
  while (whole() > room) {
    TextColumn* widest = nullptr;
    // Names stay whole: they are copied, and looked for.
    for (TextColumn& column : columns)
      if (&column != columns.data() && !column.number &&
          (widest == nullptr || column.width >= widest->width))
        widest = &column;
    if (widest == nullptr || widest->width <= kLeastText) return;
    --widest->width;
  }
}

std::string line_of(const std::vector<TextColumn>& columns, std::size_t row) {
  std::vector<std::vector<std::string>> cells;
  std::size_t lines = 1;
  for (const TextColumn& column : columns) {
    cells.push_back(folded(column.cells[row], column.width));
    lines = std::max(lines, cells.back().size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines; ++i) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string cell = i < cells[c].size() ? cells[c][i] : "";
      const std::string padding(columns[c].width - std::min(columns[c].width, columns_of(cell)),
                                ' ');
      line += std::string(kGap, ' ');
      line += columns[c].number ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += (row == 0 ? bold(line) : line) + "\n";
  }
  return text;
}

}  // namespace

std::string fitted(const Table& table, const std::vector<ShownColumn>& shown, std::size_t columns) {
  std::vector<TextColumn> texts;
  for (const ShownColumn& column : shown) texts.emplace_back(table, column);
  squeeze(texts, columns);
  std::string text;
  for (std::size_t row = 0; row <= table.rows().size(); ++row) text += line_of(texts, row);
  return text;
}

std::string details(const Table& table, std::size_t columns) {
  std::vector<std::string> names;
  for (const Column& column : table.columns()) names.push_back(column.name);
  const std::size_t width = widest_of(names) + kGap;
  std::string text;
  for (const auto& row : table.rows()) {
    if (!text.empty()) text += "\n";
    for (std::size_t c = 0; c < row.size(); ++c)
      text += paragraph(fmt::format("  {:<{}}", names[c], width), text_of(row[c]), columns);
  }
  return text;
}

}  // namespace fp8lab::cli
