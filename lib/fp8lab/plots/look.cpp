#include "fp8lab/plots/look.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/short_number.hpp"
#include "fp8lab/plots/tics.hpp"

namespace fp8lab {
namespace {

constexpr double kLeastShare = 0.15;   ///< of the colours, that most cells should have
constexpr std::size_t kFewCells = 10;  ///< no clipping in maps of fewer cells

/// Where `value` is on the map's scale of colours.
double place_of(const HeatMap& map, double value) { return map.log ? std::log(value) : value; }

}  // namespace

std::vector<std::size_t> colours_of(const Plot& plot) {
  std::vector<std::size_t> colours(plot.series.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < colours.size(); ++i)
    if (!plot.series[i].like) colours[i] = next++;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const auto& like = plot.series[i].like;
    if (!like) continue;
    require(*like < colours.size() && !plot.series[*like].like,
            fmt::format("plot {}: like of series '{}'", plot.name, plot.series[i].label),
            "the index of a series with a colour of its own", fmt::format("{}", *like));
    colours[i] = colours[*like];
  }
  return colours;
}

std::vector<std::size_t> drawing_order(const Plot& plot) {
  std::vector<std::size_t> order;
  for (const bool dashed : {false, true})
    for (std::size_t i = plot.series.size(); i-- > 0;)
      if ((plot.series[i].style == Series::Style::dashed) == dashed) order.push_back(i);
  return order;
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
  const AxisLayout layout = lay_out(axis, shown);
  return {layout.low, layout.high, beyond};
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
