#include "lab/report/slice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace fp8lab {
namespace {

constexpr const char* kVaries = "varies";

/// A dimension whose value in each row is `cells`.
Dimension dimension_of(std::string name, bool axis, const std::vector<std::string>& cells) {
  Dimension dimension{std::move(name), axis, true, {}, {}};
  std::map<std::string, std::size_t> index;
  for (const std::string& cell : cells) {
    const auto [at, added] = index.emplace(cell, dimension.values.size());
    if (added) dimension.values.push_back(cell);
    dimension.numeric = dimension.numeric && number_in(cell).has_value();
  }
  if (dimension.numeric)
    std::ranges::sort(dimension.values, {}, [](const std::string& v) { return *number_in(v); });
  for (std::size_t i = 0; i < dimension.values.size(); ++i) index[dimension.values[i]] = i;
  for (const std::string& cell : cells) dimension.of_row.push_back(index[cell]);
  return dimension;
}

std::vector<std::string> cells_of(const StoredTable& table, std::size_t column) {
  std::vector<std::string> cells;
  for (const auto& row : table.rows) cells.push_back(row[column]);
  return cells;
}

/// The place of each row among those of its point; empty if points have different numbers of rows.
std::vector<std::size_t> places_of(const StoredTable& table) {
  std::map<std::vector<std::string>, std::size_t> rows_of_point;
  std::vector<std::size_t> places;
  for (const auto& row : table.rows) places.push_back(rows_of_point[row_key(table, row, 0)]++);
  const bool even = std::ranges::all_of(rows_of_point, [&](const auto& point) {
    return point.second == rows_of_point.begin()->second;
  });
  if (!even) places.clear();
  return places;
}

/// The cells of a key, "varies" in the places where points differ in it.
std::vector<std::string> settled_cells(const StoredTable& table, std::size_t column,
                                       const std::vector<std::size_t>& places) {
  std::vector<std::string> cells = cells_of(table, column);
  std::map<std::size_t, std::set<std::string>> values;
  for (std::size_t r = 0; r < places.size(); ++r) values[places[r]].insert(cells[r]);
  for (std::size_t r = 0; r < places.size(); ++r)
    if (values[places[r]].size() > 1) cells[r] = kVaries;
  return cells;
}

/// The own keys that each tell more rows of a point apart than those before them.
std::vector<Dimension> own_dimensions(const StoredTable& table) {
  const std::vector<std::size_t> places = places_of(table);
  std::vector<Dimension> dimensions;
  std::vector<std::vector<std::string>> labels(table.rows.size());
  const auto groups = [&](const std::vector<std::vector<std::string>>& of_rows) {
    std::set<std::pair<std::vector<std::string>, std::vector<std::string>>> distinct;
    for (std::size_t r = 0; r < of_rows.size(); ++r)
      distinct.emplace(row_key(table, table.rows[r], 0), of_rows[r]);
    return distinct.size();
  };
  std::size_t apart = groups(labels);
  const std::size_t own = own_keys(table).value_or(0);
  for (std::size_t c = table.point_columns; c < table.point_columns + own; ++c) {
    const auto cells = places.empty() ? cells_of(table, c) : settled_cells(table, c, places);
    std::vector<std::vector<std::string>> finer = labels;
    for (std::size_t r = 0; r < cells.size(); ++r) finer[r].push_back(cells[r]);
    if (groups(finer) == apart) continue;
    labels = std::move(finer);
    apart = groups(labels);
    dimensions.push_back(dimension_of(table.columns[c].name, false, cells));
  }
  if (apart == table.rows.size() || places.empty()) return dimensions;
  std::vector<std::string> rows;
  for (const std::size_t place : places) rows.push_back(std::to_string(place + 1));
  return {dimension_of("row", false, rows)};
}

}  // namespace

std::vector<Dimension> dimensions_of(const StoredTable& table) {
  std::vector<Dimension> dimensions;
  for (std::size_t c = 0; c + 2 < table.point_columns; ++c) {
    Dimension axis = dimension_of(table.columns[c].name, true, cells_of(table, c));
    if (axis.values.size() > 1) dimensions.push_back(std::move(axis));
  }
  for (Dimension& own : own_dimensions(table)) dimensions.push_back(std::move(own));
  return dimensions;
}

Slice::Slice(const StoredTable& table, const std::vector<Dimension>& dimensions)
    : dimensions_(dimensions), rows_(table.rows.size()) {
  std::iota(rows_.begin(), rows_.end(), std::size_t{0});
}

std::vector<std::size_t> Slice::values(std::size_t dimension) const {
  std::set<std::size_t> values;
  for (const std::size_t row : rows_) values.insert(dimensions_[dimension].of_row[row]);
  return {values.begin(), values.end()};
}

void Slice::hold(std::size_t dimension) {
  const Dimension& of = dimensions_[dimension];
  const std::vector<std::size_t> left = values(dimension);
  if (left.size() < 2) return;
  const auto varies = std::ranges::find(left, kVaries, [&](std::size_t v) { return of.values[v]; });
  const std::size_t middle = of.numeric ? left.size() / 2 : 0;
  const std::size_t value = varies == left.end() ? left[middle] : *varies;
  std::erase_if(rows_, [&](std::size_t row) { return of.of_row[row] != value; });
  held_.push_back(
      fmt::format("{}{}{}", of.name, of.values[value] == kVaries ? " " : " = ", of.values[value]));
}

std::size_t Slice::combinations(const std::vector<std::size_t>& dimensions) const {
  std::set<std::vector<std::size_t>> seen;
  for (const std::size_t row : rows_) {
    std::vector<std::size_t> values;
    for (const std::size_t d : dimensions) values.push_back(dimensions_[d].of_row[row]);
    seen.insert(std::move(values));
  }
  return seen.size();
}

void Slice::hold_until(std::vector<std::size_t> free, std::size_t most) {
  while (!free.empty() && combinations(free) > most) {
    const auto widest = std::ranges::max_element(
        free, {}, [this](std::size_t dimension) { return values(dimension).size(); });
    hold(*widest);
    free.erase(widest);
  }
}

std::string Slice::held() const { return fmt::format("{}", fmt::join(held_, ", ")); }

}  // namespace fp8lab
