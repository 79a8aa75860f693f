#pragma once
// A table as a list of columns over rows of one type. Each column has a name, a unit, a description
// and a function that gives its cell of a row, so that columns and cells cannot be mixed up.
//
//   const Table table = row_table<Point>("error", "Error against K",
//       {{"k", "terms", "length of the sum", &Point::k},
//        {"error", "%", "of the result", [](const Point& p) { return 100.0 * p.error; }}},
//       points);

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lab/experiment/table.hpp"

namespace fp8lab {

/// A cell of any integer, real, flag, text, or enumerator that has a `to_string`.
template <typename Value>
Cell to_cell(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>)
    return value;
  else if constexpr (std::integral<Value>)
    return static_cast<std::int64_t>(value);
  else if constexpr (std::floating_point<Value>)
    return static_cast<double>(value);
  else if constexpr (std::is_convertible_v<const Value&, std::string_view>)
    return std::string(std::string_view(value));
  else
    return std::string(to_string(value));
}

/// A column, and its cell of a row.
template <typename Row>
struct RowColumn {
  /// `get`: a member of `Row`, or a function of a row, whose value `to_cell` takes.
  template <typename Get>
  RowColumn(std::string name, std::string unit, std::string help, Get get)
      : column{std::move(name), std::move(unit), std::move(help)},
        cell([get](const Row& row) { return to_cell(std::invoke(get, row)); }) {}

  Column column;
  std::function<Cell(const Row&)> cell;
};

/// A table with one line for each of `rows`, in order.
template <typename Row>
Table row_table(std::string name, std::string title, const std::vector<RowColumn<Row>>& columns,
                std::span<const Row> rows) {
  std::vector<Column> heads;
  heads.reserve(columns.size());
  for (const RowColumn<Row>& one : columns) heads.push_back(one.column);
  Table table(std::move(name), std::move(title), std::move(heads));
  for (const Row& row : rows) {
    std::vector<Cell> cells;
    cells.reserve(columns.size());
    for (const RowColumn<Row>& one : columns) cells.push_back(one.cell(row));
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace fp8lab
