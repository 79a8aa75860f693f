#include "common/repeats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "fp8lab/core/counted.hpp"

namespace fp8lab::experiments {
namespace {

double number(const Cell& cell) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*integer);
  return std::get<double>(cell);
}

bool is_measured(const Column& column, const std::vector<std::string_view>& measured) {
  return std::ranges::find(measured, column.name) != measured.end();
}

Table mean_table(std::span<const Table> repeats, const std::vector<std::string_view>& measured) {
  const Table& first = repeats.front();
  std::vector<Column> columns;
  for (Column column : first.columns()) {
    const bool spread = is_measured(column, measured);
    if (spread && !column.description.ends_with("mean")) column.description += ", mean over draws";
    columns.push_back(column);
    if (spread)
      columns.push_back({column.name + "_spread", column.unit,
                         "half width of the interval that holds 99 % of single draws"});
  }
  Table table(first.name(), fmt::format("{}, {}", first.title(), counted(repeats.size(), "draw")),
              columns);
  for (std::size_t row = 0; row < first.rows().size(); ++row) {
    std::vector<Cell> cells;
    for (std::size_t c = 0; c < first.columns().size(); ++c) {
      if (!is_measured(first.columns()[c], measured)) {
        cells.push_back(first.rows()[row][c]);
        continue;
      }
      const Interval interval = interval_of(
          each_repeat(repeats, [&](const Table& t) { return number(t.rows()[row][c]); }));
      cells.emplace_back(interval.mean);
      cells.emplace_back(interval.half_width);
    }
    table.add_row(std::move(cells));
  }
  return table;
}

Table draw_table(std::span<const Table> repeats, const std::vector<std::string_view>& measured) {
  const Table& first = repeats.front();
  std::vector<std::size_t> order;
  for (const bool wanted : {false, true})
    for (std::size_t c = 0; c < first.columns().size(); ++c)
      if (is_measured(first.columns()[c], measured) == wanted) order.push_back(c);
  std::vector<Column> columns;
  std::size_t labels = 0;
  for (const std::size_t c : order) {
    columns.push_back(first.columns()[c]);
    if (!is_measured(first.columns()[c], measured)) ++labels;
  }
  columns.insert(columns.begin() + static_cast<std::ptrdiff_t>(labels),
                 {"repeat", "1", "draw, from 0"});
  Table table(first.name() + "_repeats", first.title() + ", draw by draw", columns);
  for (std::size_t row = 0; row < first.rows().size(); ++row)
    for (std::size_t repeat = 0; repeat < repeats.size(); ++repeat) {
      std::vector<Cell> cells;
      for (const std::size_t c : order) cells.push_back(repeats[repeat].rows()[row][c]);
      cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(labels),
                   static_cast<std::int64_t>(repeat));
      table.add_row(std::move(cells));
    }
  return table;
}

}  // namespace

RunContext part_of(const RunContext& context, double from, double to) {
  RunContext part = context;
  if (context.on_progress)
    part.on_progress = [report = context.on_progress, from, to](double fraction) {
      report(std::lerp(from, to, fraction));
    };
  return part;
}

RunContext repeat_of(const RunContext& context, std::size_t repeat, std::size_t repeats) {
  const auto share = [&](std::size_t done) {
    return static_cast<double>(done) / static_cast<double>(repeats);
  };
  RunContext one = part_of(context, share(repeat), share(repeat + 1));
  if (repeat > 0) one.seed = context.random("repeats").bits64(repeat);
  return one;
}

std::vector<Table> join_repeats(std::span<const Table> repeats,
                                const std::vector<std::string_view>& measured) {
  return {mean_table(repeats, measured), draw_table(repeats, measured)};
}

}  // namespace fp8lab::experiments
