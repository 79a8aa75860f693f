#pragma once
// Lines of a plot from points in any order.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lab/plots/plot.hpp"

namespace fp8lab::experiments {

/// One series for each label, in the order in which labels appear: `label(point)` is its
/// name ("" leaves the point out), `position(point)` x and y, or x, y and the two
/// edges of a band; `style(point)` is the style of a series that begins with the point.
template <typename Point, typename Label, typename Position, typename Style>
std::vector<Series> series_by(const std::vector<Point>& points, Label label, Position position,
                              Style style) {
  std::vector<Series> all;
  for (const Point& point : points) {
    const std::string name = label(point);
    if (name.empty()) continue;
    auto at =
        std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.label == name; });
    if (at == all.end()) at = all.insert(all.end(), {name, {}, {}, style(point)});
    const auto place = position(point);
    at->x.push_back(std::get<0>(place));
    at->y.push_back(std::get<1>(place));
    if constexpr (std::tuple_size_v<std::remove_cvref_t<decltype(place)>> == 4) {
      at->low.push_back(std::get<2>(place));
      at->high.push_back(std::get<3>(place));
    }
  }
  return all;
}

/// The same in lines with points.
template <typename Point, typename Label, typename Position>
std::vector<Series> series_by(const std::vector<Point>& points, Label label, Position position) {
  return series_by(points, label, position,
                   [](const Point&) { return Series::Style::lines_points; });
}

/// The same plot with its y values in percent; its label says so.
inline Plot in_percent(Plot plot) {
  for (Series& series : plot.series)
    for (auto* values : {&series.y, &series.low, &series.high})
      for (double& value : *values) value *= 100.0;
  return plot;
}

/// Gives each series whose label has `variant` the colour of the series whose label has `original`
/// in its place, if there is one: two curves of the same thing.
inline void share_colours(std::vector<Series>& all, std::string_view variant,
                          std::string_view original) {
  for (Series& series : all) {
    const auto at = series.label.find(variant);
    if (at == std::string::npos) continue;
    std::string label = series.label;
    label.replace(at, variant.size(), original);
    const auto like = std::find_if(all.begin(), all.end(), [&](const Series& other) {
      return &other != &series && !other.like && other.label == label;
    });
    if (like != all.end()) series.like = static_cast<std::size_t>(like - all.begin());
  }
}

/// Values against their index in some 1000 points: of each stretch its smallest and largest, so
/// that a spike of one step stays.
inline Series thinned(const std::string& label, const std::vector<double>& y,
                      Series::Style style = Series::Style::lines) {
  constexpr std::size_t kStretches = 500;
  Series series{label, {}, {}, style};
  const std::size_t stride = std::max<std::size_t>(1, y.size() / kStretches);
  for (std::size_t begin = 0; begin < y.size(); begin += stride) {
    const auto first = y.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = y.begin() + static_cast<std::ptrdiff_t>(std::min(begin + stride, y.size()));
    const auto [low, high] = std::minmax_element(first, last);
    for (const auto at : {std::min(low, high), std::max(low, high)}) {
      const auto x = static_cast<double>(at - y.begin());
      if (!series.x.empty() && series.x.back() == x) continue;
      series.x.push_back(x);
      series.y.push_back(*at);
    }
  }
  return series;
}

}  // namespace fp8lab::experiments
