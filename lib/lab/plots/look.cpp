#include "lab/plots/look.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/short_number.hpp"

namespace fp8lab {
namespace {

constexpr double kLeastShare = 0.15;   ///< of the colours, that most cells should have
constexpr std::size_t kFewCells = 10;  ///< no clipping in maps of fewer cells

/// What a linear axis may have of one curve, over the largest value of all others.
constexpr double kMostAboveOthers = 1e4;

/// The points of a curve that both axes can show.
std::vector<std::size_t> shown_points(const Plot& plot, const Series& series) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < series.x.size(); ++i)
    if (can_show(plot.x, series.x[i]) && can_show(plot.y, series.y[i])) shown.push_back(i);
  return shown;
}

/// The largest magnitude of a curve that the axes show.
double largest_of(const Plot& plot, const Series& series) {
  double largest = 0.0;
  for (const std::size_t i : shown_points(plot, series))
    largest = std::max(largest, std::abs(series.y[i]));
  return largest;
}

/// Where `value` is on the map's scale of colours.
double place_of(const HeatMap& map, double value) { return map.log ? std::log(value) : value; }

}  // namespace

std::vector<std::size_t> drawing_order(const Plot& plot) {
  std::vector<std::size_t> order;
  for (const bool dashed : {false, true})
    for (std::size_t i = plot.series.size(); i-- > 0;)
      if ((plot.series[i].style == Series::Style::dashed) == dashed) order.push_back(i);
  return order;
}

bool can_show(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.log || value > 0.0);
}

std::vector<double> shown_values(const Plot& plot, bool of_x,
                                 const std::vector<std::size_t>& without) {
  std::vector<double> values;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    if (std::ranges::find(without, s) != without.end()) continue;
    const Series& series = plot.series[s];
    for (const std::size_t i : shown_points(plot, series)) {
      values.push_back(of_x ? series.x[i] : series.y[i]);
      if (of_x || series.low.empty()) continue;
      for (const double edge : {series.low[i], series.high[i]})
        if (can_show(plot.y, edge)) values.push_back(edge);
    }
  }
  return values;
}

std::vector<std::size_t> runaways(const Plot& plot) {
  std::vector<std::pair<double, std::size_t>> heights;
  for (const Series& series : plot.series)
    heights.emplace_back(largest_of(plot, series), heights.size());
  std::ranges::stable_sort(heights, {}, &std::pair<double, std::size_t>::first);
  std::vector<std::size_t> found;
  for (; !plot.y.log && heights.size() > 1; heights.pop_back()) {
    const double others = heights[heights.size() - 2].first;
    if (!(others > 0.0 && heights.back().first > kMostAboveOthers * others)) break;
    found.push_back(heights.back().second);
  }
  return found;
}

std::string note_of(const Plot& plot) {
  std::size_t not_positive = 0;
  std::size_t infinite = 0;
  std::vector<std::string> empty;
  const auto count = [&](const Axis& axis, double value) {
    if (std::isinf(value)) ++infinite;
    if (axis.log && value <= 0.0 && std::isfinite(value)) ++not_positive;
  };
  for (const Series& series : plot.series) {
    for (const double x : series.x) count(plot.x, x);
    for (const double y : series.y) count(plot.y, y);
    if (shown_points(plot, series).empty() && !series.label.empty()) empty.push_back(series.label);
  }
  std::vector<std::string> notes;
  for (const std::size_t i : runaways(plot))
    notes.push_back(fmt::format("{} leaves the plot, to {:.2g}", plot.series[i].label,
                                largest_of(plot, plot.series[i])));
  if (not_positive > 0)
    notes.push_back(fmt::format("{} ≤ 0 left out (log axis)", counted(not_positive, "value")));
  if (infinite > 0)
    notes.push_back(fmt::format("{} left out", counted(infinite, "infinite value")));
  if (!empty.empty())
    notes.push_back(fmt::format("nothing to show for: {}", fmt::join(empty, ", ")));
  if (shown_values(plot, true).empty()) notes.emplace_back("no value to show");
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::string note_of(const HeatMap& map) {
  const auto grey = static_cast<std::size_t>(std::ranges::count_if(map.values, [&](double value) {
    return !std::isnan(value) && !can_show({map.value_label, map.log}, value);
  }));
  const ColourRange range = colour_range(map);
  std::vector<std::string> notes;
  if (grey > 0)
    notes.push_back(fmt::format("grey: {} {}infinite", counted(grey, "cell"),
                                map.log ? "≤ 0 (log colours) or " : ""));
  if (range.beyond > 0)
    notes.push_back(fmt::format("colours end at {:.3g}: {} {} the last one", range.high,
                                counted(range.beyond, "larger cell"),
                                range.beyond == 1 ? "has" : "have"));
  return fmt::format("{}", fmt::join(notes, "; "));
}

ColourRange colour_range(const HeatMap& map) {
  const Axis axis{map.value_label, map.log, 10};
  std::vector<double> shown;
  for (const double value : map.values)
    if (can_show(axis, value)) shown.push_back(value);
  std::sort(shown.begin(), shown.end());
  std::size_t beyond = 0;
  if (shown.size() > kFewCells) {
    const double least = place_of(map, shown.front());
    const auto span = [&](std::size_t i) { return place_of(map, shown[i]) - least; };
    std::size_t last = shown.size() - 1 - shown.size() / 5;
    // Up to the first jump that is larger than all below it.
    while (last + 1 < shown.size() && span(last + 1) <= 2.0 * span(last)) ++last;
    if (span(last) > 0.0 && span(last) < kLeastShare * span(shown.size() - 1)) {
      beyond = shown.size() - 1 - last;
      shown.resize(last + 1);
    }
  }
  if (shown.empty()) return map.log ? ColourRange{1.0, 10.0, 0} : ColourRange{};
  const auto [low, high] = std::pair(shown.front(), shown.back());
  if (low < high) return {low, high, beyond};
  // Room around a single value.
  if (map.log) return {low / 2.0, high * 2.0, beyond};
  const double room = std::max(0.5, std::abs(low) * 0.1);
  return {low - room, high + room, beyond};
}

std::vector<std::string> cell_texts(const HeatMap& map) {
  double largest = 0.0;
  for (const double value : map.values)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  const double step =
      map.log || largest == 0.0 ? 0.0 : std::pow(10.0, std::floor(std::log10(largest)) - 3.0);
  std::vector<std::string> texts;
  for (const double value : map.values) {
    if (std::isnan(value)) {
      texts.emplace_back();
      continue;
    }
    const bool round = step > 0.0 && std::isfinite(value);
    // Adding zero makes -0 a 0.
    texts.push_back(short_number(round ? std::round(value / step) * step + 0.0 : value));
  }
  return texts;
}

}  // namespace fp8lab
