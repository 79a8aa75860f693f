#pragma once
// Lines of a plot from points in any order.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/plots/plot.hpp"

namespace fp8lab::experiments {

/// One series for each label, in the order in which labels appear: `label(point)` is its
/// name ("" leaves the point out), `position(point)` the pair of x and y, `style(point)`
/// the style of a series that begins with the point.
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
    const auto [x, y] = position(point);
    at->x.push_back(x);
    at->y.push_back(y);
  }
  return all;
}

/// The same in lines with points.
template <typename Point, typename Label, typename Position>
std::vector<Series> series_by(const std::vector<Point>& points, Label label, Position position) {
  return series_by(points, label, position,
                   [](const Point&) { return Series::Style::lines_points; });
}

}  // namespace fp8lab::experiments
