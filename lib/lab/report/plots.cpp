#include "lab/report/plots.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "fp8lab/core/short_number.hpp"
#include "lab/plots/look.hpp"
#include "lab/report/dependence.hpp"
#include "lab/report/slice.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMeasures = 2;    ///< drawn of each table
constexpr std::size_t kLines = 8;       ///< in a plot; an axis may have more of its own
constexpr std::size_t kAxisLines = 14;  ///< of an axis: as many as colours and dashes tell apart
constexpr std::size_t kCells = 40;      ///< of a heat map's side

/// A mean that is what its values are where they are not finite.
struct Mean {
  double sum = 0.0;
  std::size_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  [[nodiscard]] double value() const {
    return count == 0 ? std::nan("") : sum / static_cast<double>(count);
  }
};

/// Errors first, then other names of quality, then reals, then counts.
int rank_of(const StoredTable& table, std::size_t column) {
  std::string text = table.columns[column].name + " " + table.columns[column].description;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.find("error") != std::string::npos) return 0;
  for (const char* word : {"l2", "mse", "snr", "sqnr", "loss", "gap"})
    if (text.find(word) != std::string::npos) return 1;
  const bool real = std::ranges::any_of(table.rows, [&](const auto& row) {
    return row[column].find_first_of(".e") != std::string::npos;
  });
  return real ? 2 : 3;
}

std::vector<std::size_t> measures_of(const StoredTable& table) {
  std::vector<std::size_t> measures;
  for (std::size_t c = table.point_columns + own_keys(table).value_or(0); c < table.columns.size();
       ++c) {
    const bool varies = std::ranges::any_of(
        table.rows, [&](const auto& row) { return row[c] != table.rows.front()[c]; });
    if (varies && is_numeric(table, c) && !is_spread(table, c)) measures.push_back(c);
  }
  std::ranges::stable_sort(measures, {}, [&](std::size_t c) { return rank_of(table, c); });
  if (measures.size() > kMeasures) measures.resize(kMeasures);
  return measures;
}

double value_of(const StoredTable& table, std::size_t row, std::size_t column) {
  return number_in(table.rows[row][column]).value_or(std::nan(""));
}

bool is_geometric(const std::vector<double>& rising) {
  if (rising.size() < 3 || rising.front() <= 0.0) return false;
  const double ratio = rising[1] / rising[0];
  for (std::size_t i = 2; i < rising.size(); ++i)
    if (std::abs(rising[i] / rising[i - 1] / ratio - 1.0) > 0.01) return false;
  return true;
}

Axis axis_of(const Dimension& dimension) {
  std::vector<double> values;
  for (const std::string& value : dimension.values) values.push_back(*number_in(value));
  if (!is_geometric(values)) return {dimension.name, false, 10};
  const double octaves = std::log2(values[1] / values[0]);
  return {dimension.name, true, std::abs(octaves - std::round(octaves)) < 0.01 ? 2 : 10};
}

/// Values that span decades are read on a log axis.
bool wants_log(const std::vector<double>& values) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0.0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return least > 0.0 && most >= 30.0 * least;
}

std::string label_of(const Column& column) {
  return column.unit.empty() || column.unit == "1"
             ? column.name
             : fmt::format("{} ({})", column.name, column.unit);
}

/// A value of a dimension in a legend: a number says of what.
std::string value_text(const Dimension& dimension, std::size_t value) {
  return dimension.numeric || dimension.values[value] == "varies"
             ? fmt::format("{} {}", dimension.name, dimension.values[value])
             : dimension.values[value];
}

/// Which dimensions a sweep's pictures are over.
struct Layout {
  std::vector<Dimension> dimensions;
  std::optional<std::size_t> x;      ///< the numeric axis of most values
  std::optional<std::size_t> other;  ///< of the other axes the one of most values
  std::size_t repeats = 1;

  /// Of the dimensions that fit, the first of those with most values.
  template <class Fits>
  [[nodiscard]] std::optional<std::size_t> widest(const Fits& fits) const {
    std::optional<std::size_t> best;
    for (std::size_t d = 0; d < dimensions.size(); ++d)
      if (fits(d) && (!best || dimensions[d].values.size() > dimensions[*best].values.size()))
        best = d;
    return best;
  }
  /// All dimensions but these.
  [[nodiscard]] std::vector<std::size_t> without(std::optional<std::size_t> a,
                                                 std::optional<std::size_t> b) const {
    std::vector<std::size_t> rest;
    for (std::size_t d = 0; d < dimensions.size(); ++d)
      if (d != a && d != b) rest.push_back(d);
    return rest;
  }
};

Layout layout_of(const StoredTable& table) {
  Layout layout{dimensions_of(table), {}, {}, 1};
  const auto& dimensions = layout.dimensions;
  layout.x =
      layout.widest([&](std::size_t d) { return dimensions[d].axis && dimensions[d].numeric; });
  layout.other = layout.widest([&](std::size_t d) { return dimensions[d].axis && d != layout.x; });
  for (const auto& row : table.rows)
    if (const auto repeat = number_in(row[table.point_columns - 2]))
      layout.repeats = std::max(layout.repeats, static_cast<std::size_t>(*repeat) + 1);
  return layout;
}

std::string setup_of(const Layout& layout, const Slice& slice) {
  std::vector<std::string> parts;
  if (!slice.held().empty()) parts.push_back(slice.held());
  if (layout.repeats > 1) parts.push_back(fmt::format("mean of {} repeats", layout.repeats));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string title_of(const StoredTable& table, std::size_t measure, const std::string& over,
                     const std::string& setup) {
  const Column& column = table.columns[measure];
  const std::string what = column.description.empty() ? column.name : column.description;
  const std::string at = setup.empty() ? "" : fmt::format(" ({})", setup);
  return fmt::format("{}: {} against {}{}", table.file.substr(0, table.file.rfind('.')), what, over,
                     at);
}

std::optional<Plot> line_plot(const StoredTable& table, std::size_t measure, const Layout& layout) {
  const auto& dimensions = layout.dimensions;
  const std::size_t axis_lines = layout.other ? dimensions[*layout.other].values.size() : 1;
  if (!layout.x || axis_lines > kAxisLines) return std::nullopt;
  const Dimension& x = dimensions[*layout.x];
  Slice slice(table, dimensions);
  slice.hold_until(layout.without(layout.x, layout.other),
                   std::max(kLines / axis_lines, std::size_t{1}));

  std::vector<std::size_t> told_apart;
  for (const std::size_t d : layout.without(layout.x, std::nullopt))
    if (slice.values(d).size() > 1) told_apart.push_back(d);
  std::stable_partition(told_apart.begin(), told_apart.end(),
                        [&](std::size_t d) { return d == layout.other; });
  std::map<std::vector<std::size_t>, std::map<std::size_t, Mean>> lines;
  for (const std::size_t row : slice.rows()) {
    std::vector<std::size_t> line;
    for (const std::size_t d : told_apart) line.push_back(dimensions[d].of_row[row]);
    lines[line][x.of_row[row]].add(value_of(table, row, measure));
  }
  Plot plot{"",
            title_of(table, measure, x.name, setup_of(layout, slice)),
            axis_of(x),
            {label_of(table.columns[measure]), false, 10},
            {}};
  std::vector<double> all;
  for (const auto& [line, points] : lines) {
    std::vector<std::string> label;
    for (std::size_t i = 0; i < line.size(); ++i)
      label.push_back(value_text(dimensions[told_apart[i]], line[i]));
    Series series{fmt::format("{}", fmt::join(label, ", ")), {}, {}, Series::Style::lines_points};
    for (const auto& [value, mean] : points) {
      series.x.push_back(*number_in(x.values[value]));
      series.y.push_back(mean.value());
      all.push_back(mean.value());
    }
    plot.series.push_back(std::move(series));
  }
  plot.y.log = wants_log(all);
  return plot;
}

/// Over two axes; over one of labels and the rows of a point; or none.
std::optional<HeatMap> heat_map(const StoredTable& table, std::size_t measure,
                                const Layout& layout) {
  const auto& dimensions = layout.dimensions;
  const std::optional<std::size_t> columns = layout.x ? layout.x : layout.other;
  auto rows = layout.widest([&](std::size_t d) { return dimensions[d].axis && d != columns; });
  if (!rows && !layout.x) rows = layout.widest([&](std::size_t d) { return d != columns; });
  if (!columns || !rows) return std::nullopt;
  Slice slice(table, dimensions);
  slice.hold_until(layout.without(columns, rows), 1);
  const std::vector<std::size_t> across = slice.values(*columns);
  const std::vector<std::size_t> up = slice.values(*rows);
  if (across.size() > kCells || up.size() > kCells) return std::nullopt;

  std::map<std::pair<std::size_t, std::size_t>, Mean> means;
  for (const std::size_t row : slice.rows())
    means[{dimensions[*rows].of_row[row], dimensions[*columns].of_row[row]}].add(
        value_of(table, row, measure));
  HeatMap map;
  map.title = title_of(table, measure,
                       fmt::format("{} and {}", dimensions[*columns].name, dimensions[*rows].name),
                       setup_of(layout, slice));
  map.x_label = dimensions[*columns].name;
  map.y_label = dimensions[*rows].name;
  map.value_label = label_of(table.columns[measure]);
  for (const std::size_t value : across) map.columns.push_back(dimensions[*columns].values[value]);
  for (const std::size_t value : up) {
    map.rows.push_back(dimensions[*rows].values[value]);
    for (const std::size_t column : across) map.values.push_back(means[{value, column}].value());
  }
  map.log = wants_log(map.values);
  return map;
}

/// The draws of a measure at each point that has finite ones, rows of a point held at one.
GridDraws draws_of(const StoredTable& table, std::size_t measure, const Slice& slice,
                   const std::vector<Dimension>& dimensions, const std::vector<std::size_t>& axes) {
  GridDraws draws;
  for (const std::size_t row : slice.rows()) {
    std::vector<std::size_t> point;
    for (const std::size_t d : axes) point.push_back(dimensions[d].of_row[row]);
    draws[point].push_back(value_of(table, row, measure));
  }
  std::erase_if(draws, [](const auto& p) {
    return !std::ranges::all_of(p.second, [](double v) { return std::isfinite(v); });
  });
  return draws;
}

/// The means over all points that agree on the axes that matter.
GridDraws over_others(const GridDraws& draws, const std::vector<bool>& matter) {
  GridDraws merged;
  for (const auto& [point, values] : draws) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < point.size(); ++i)
      if (matter[i]) kept.push_back(point[i]);
    auto& all = merged[kept];
    all.insert(all.end(), values.begin(), values.end());
  }
  return merged;
}

/// As logarithms where the draws span decades, as on an axis: noise is then a share of the value.
GridDraws on_their_scale(GridDraws draws) {
  std::vector<double> all;
  for (const auto& [point, values] : draws) all.insert(all.end(), values.begin(), values.end());
  if (!wants_log(all)) return draws;
  for (auto& [point, values] : draws)
    for (double& v : values) v = std::log(v);
  return draws;
}

double mean_of(const std::vector<double>& values) {
  Mean mean;
  for (const double v : values) mean.add(v);
  return mean.value();
}

/// Where a measure is least and most, as far as draws can tell.
std::string extremes(const StoredTable& table, std::size_t measure, const Layout& layout) {
  const auto& dimensions = layout.dimensions;
  std::vector<std::size_t> axes;
  std::vector<std::size_t> own;
  for (std::size_t d = 0; d < dimensions.size(); ++d)
    (dimensions[d].axis ? axes : own).push_back(d);
  Slice slice(table, dimensions);
  slice.hold_until(own, 1);
  const GridDraws draws = draws_of(table, measure, slice, dimensions, axes);
  if (axes.empty() || draws.size() < 2) return "";
  const auto by_mean = [](const auto& a, const auto& b) {
    return mean_of(a.second) < mean_of(b.second);
  };
  const std::string what = fmt::format("{}: {}", table.file.substr(0, table.file.rfind('.')),
                                       label_of(table.columns[measure]));
  const std::string setup = setup_of(layout, slice);
  const std::string at = setup.empty() ? "" : fmt::format(" ({})", setup);
  const auto matter = axes_that_matter(on_their_scale(draws), axes.size());
  if (!matter) {
    const auto [least, most] = std::ranges::minmax_element(draws, by_mean);
    return fmt::format(
        "{} lies between {} and {}{}; only repeats of each point can show whether the place of the "
        "smallest value is due to chance.",
        what, short_number(mean_of(least->second)), short_number(mean_of(most->second)), at);
  }
  std::vector<std::string> idle;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if ((*matter)[i])
      kept.push_back(axes[i]);
    else
      idle.push_back(dimensions[axes[i]].name);
  const std::string same =
      fmt::format("does not depend on {} beyond the spread of its draws", fmt::join(idle, ", "));
  const GridDraws merged = over_others(draws, *matter);
  if (kept.empty())
    return fmt::format("{} {}: {} on average{}.", what, same,
                       short_number(mean_of(merged.begin()->second)), at);
  const auto [least, most] = std::ranges::minmax_element(merged, by_mean);
  const auto text = [&](const auto& point) {
    std::vector<std::string> place;
    for (std::size_t i = 0; i < kept.size(); ++i)
      place.push_back(fmt::format("{} = {}", dimensions[kept[i]].name,
                                  dimensions[kept[i]].values[point->first[i]]));
    return fmt::format("{} at {}", short_number(mean_of(point->second)), fmt::join(place, ", "));
  };
  return fmt::format("{} is smallest, {}, and largest, {}{}{}.", what, text(least), text(most),
                     idle.empty() ? "" : fmt::format("; it {}", same), at);
}

}  // namespace

ChosenPlots choose_plots(const StoredTable& table) {
  ChosenPlots chosen;
  if (table.rows.empty()) return chosen;
  const std::vector<std::size_t> measures = measures_of(table);
  if (measures.empty()) return chosen;
  const Layout layout = layout_of(table);
  for (const std::size_t measure : measures) {
    if (auto plot = line_plot(table, measure, layout)) chosen.plots.push_back(std::move(*plot));
    if (auto map = heat_map(table, measure, layout)) chosen.heat_maps.push_back(std::move(*map));
  }
  assign_colours(chosen.plots);
  if (std::string finding = extremes(table, measures.front(), layout); !finding.empty())
    chosen.findings.push_back(std::move(finding));
  return chosen;
}

}  // namespace fp8lab
