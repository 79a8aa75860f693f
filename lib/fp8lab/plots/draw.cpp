#include "fp8lab/plots/draw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/plots/gnuplot_text.hpp"
#include "fp8lab/plots/look.hpp"
#include "fp8lab/plots/tics.hpp"

namespace fp8lab {
namespace {

// Okabe and Ito's colours, told apart by people of every colour vision; their
// yellow is left out, it is too pale on white.
constexpr std::array kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                              "#E69F00", "#56B4E9", "#000000"};
constexpr std::array kPoints{7, 5, 9, 13, 11, 6, 4, 8, 12, 10};

/// The points of a series that its axes can show; the others, counted.
struct Drawable {
  const Series* series = nullptr;
  std::size_t shown = 0;
};

struct LeftOut {
  std::size_t not_positive = 0;
  std::size_t infinite = 0;

  void count(const Axis& axis, double value) {
    if (std::isinf(value)) ++infinite;
    if (axis.log && value <= 0.0 && std::isfinite(value)) ++not_positive;
  }
};

/// Bands that lie on each other turn into mud: the more of them, the paler.
double band_opacity(const Plot& plot) {
  const auto bands = std::count_if(plot.series.begin(), plot.series.end(),
                                   [](const Series& s) { return !s.low.empty(); });
  return bands <= 3 ? 0.18 : 0.54 / static_cast<double>(bands);
}

std::string style_of(const Series& series, std::size_t index) {
  const char* colour = kColours[index % kColours.size()];
  const int point = kPoints[index % kPoints.size()];
  // Colours come back after seven series; then the dash tells them apart.
  const bool again = index >= kColours.size();
  const std::string line = fmt::format("lw 2 dt {}", series.style == Series::Style::dashed ? "(8,5)"
                                                     : again                               ? "(2,3)"
                                                                                           : "1");
  const std::size_t interval = 1 + series.x.size() / 24;
  switch (series.style) {
    case Series::Style::lines:
    case Series::Style::dashed:
      return fmt::format("with lines lc rgb '{}' {}", colour, line);
    case Series::Style::steps:
      return fmt::format("with steps lc rgb '{}' {}", colour, line);
    case Series::Style::points:
      return fmt::format("with points lc rgb '{}' pt {} ps 0.8", colour, point);
    case Series::Style::lines_points:
      return fmt::format("with linespoints lc rgb '{}' {} pt {} ps 0.8 pi {}", colour, line, point,
                         interval);
  }
  return "";
}

/// One block a series: gnuplot reads `nan` as a gap.
std::string data_of(const Plot& plot, std::vector<Drawable>& drawables, LeftOut& left_out) {
  std::string data = fmt::format("# {}\n# x: {}\n# y: {}\n", one_line(plot.title),
                                 one_line(plot.x.label), one_line(plot.y.label));
  for (const Series& series : plot.series) {
    require(series.x.size() == series.y.size(),
            fmt::format("plot {}: series '{}'", plot.name, series.label),
            fmt::format("{} y values", series.x.size()), std::to_string(series.y.size()));
    const std::size_t band = series.low.empty() && series.high.empty() ? 0 : series.x.size();
    require(series.low.size() == band && series.high.size() == band,
            fmt::format("plot {}: series '{}'", plot.name, series.label),
            fmt::format("a band of {} values", series.x.size()),
            fmt::format("{} low and {} high", series.low.size(), series.high.size()));
    std::string block = fmt::format("\n\n# {}\n", one_line(series.label));
    std::size_t shown = 0;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      left_out.count(plot.x, series.x[i]);
      left_out.count(plot.y, series.y[i]);
      const bool show = can_show(plot.x, series.x[i]) && can_show(plot.y, series.y[i]);
      shown += show ? 1 : 0;
      const bool banded =
          show && band > 0 && can_show(plot.y, series.low[i]) && can_show(plot.y, series.high[i]);
      block += show ? fmt::format("{} {}", series.x[i], series.y[i]) : "nan nan";
      if (band > 0)
        block += banded ? fmt::format(" {} {}", series.low[i], series.high[i]) : " nan nan";
      block += '\n';
    }
    drawables.push_back({&series, shown});
    if (shown > 0) data += block;
  }
  return data;
}

/// What a linear axis may have of one curve, over the largest value of all others.
constexpr double kMostAboveOthers = 1e4;

/// The largest magnitude of a curve that the axes show.
double largest_of(const Plot& plot, const Series& series) {
  double largest = 0.0;
  for (std::size_t i = 0; i < series.x.size(); ++i)
    if (can_show(plot.x, series.x[i]) && can_show(plot.y, series.y[i]))
      largest = std::max(largest, std::abs(series.y[i]));
  return largest;
}

/// Curves that run away on a linear axis, where all others would lie on its edge: the picture shows
/// the others, and says so (report/plot.js has the same rule). At least one stays.
std::vector<const Series*> runaways(const Plot& plot) {
  std::vector<std::pair<double, const Series*>> heights;
  for (const Series& series : plot.series) heights.emplace_back(largest_of(plot, series), &series);
  std::stable_sort(heights.begin(), heights.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Series*> found;
  for (; !plot.y.log && heights.size() > 1; heights.pop_back()) {
    const double others = heights[heights.size() - 2].first;
    if (!(others > 0.0 && heights.back().first > kMostAboveOthers * others)) break;
    found.push_back(heights.back().second);
  }
  return found;
}

std::string note_of(const Plot& plot, const std::vector<Drawable>& drawables,
                    const LeftOut& left_out) {
  std::vector<std::string> notes;
  for (const Series* series : runaways(plot))
    notes.push_back(
        fmt::format("{} leaves the plot, to {:.2g}", series->label, largest_of(plot, *series)));
  if (left_out.not_positive > 0)
    notes.push_back(fmt::format("{} value{} ≤ 0 left out (log axis)", left_out.not_positive,
                                left_out.not_positive == 1 ? "" : "s"));
  if (left_out.infinite > 0)
    notes.push_back(fmt::format("{} infinite value{} left out", left_out.infinite,
                                left_out.infinite == 1 ? "" : "s"));
  std::vector<std::string> empty;
  for (const Drawable& drawable : drawables)
    if (drawable.shown == 0) empty.push_back(drawable.series->label);
  if (!empty.empty())
    notes.push_back(fmt::format("nothing to show for: {}", fmt::join(empty, ", ")));
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::string axis_script(std::string_view which, const Axis& axis, const AxisLayout& layout) {
  std::string script =
      fmt::format("set {}label {}{}\nset {}range [{}:{}]\n", which, enhanced(axis.label),
                  which == "x" ? " offset 0,0.4" : "", which, layout.low, layout.high);
  if (axis.log) script += fmt::format("set logscale {} {}\n", which, axis.log_base);
  return script + tics_script(which, layout);
}

/// The second scale of the x axis, at the top: the same range in other units.
std::string second_script(const Axis& axis, const AxisLayout& layout, std::vector<double> values) {
  const SecondScale& second = *axis.second;
  require(second.unit > 0.0 && std::isfinite(second.unit), fmt::format("axis {}: unit", axis.label),
          "a positive number", fmt::format("{}", second.unit));
  for (double& value : values) value /= second.unit;
  AxisLayout other = lay_out(axis, values, 0.1);
  other.low = layout.low / second.unit;
  other.high = layout.high / second.unit;
  return axis_script("x2", {second.label, axis.log, axis.log_base, {}}, other) +
         (other.tics.empty() ? "set x2tics nomirror\n" : "");
}

/// Beside the curves while the labels are short, else below them: never on top.
std::string key_script(const Plot& plot) {
  std::size_t widest = 0;
  for (const Series& series : plot.series) widest = std::max(widest, columns_of(series.label));
  if (widest == 0) return "unset key\n";
  const bool beside = widest <= 18 && plot.series.size() <= 20;
  return beside
             ? "set key outside right top vertical Left reverse samplen 2.5 spacing 1.25\n"
             : "set key below center horizontal Left reverse samplen 2.5 spacing 1.2 height 0.7\n";
}

std::vector<double> shown_values(const Plot& plot, const std::vector<double> Series::*which,
                                 const std::vector<const Series*>& without = {}) {
  std::vector<double> values;
  for (const Series& series : plot.series)
    for (std::size_t i = 0; i < series.x.size(); ++i)
      if (std::find(without.begin(), without.end(), &series) == without.end() &&
          can_show(plot.x, series.x[i]) && can_show(plot.y, series.y[i]))
        values.push_back((series.*which)[i]);
  return values;
}

}  // namespace

void write_plot(const Plot& plot, const std::filesystem::path& folder) {
  require_file_name("plot name", plot.name);
  std::vector<Drawable> drawables;
  LeftOut left_out;
  const std::string data = data_of(plot, drawables, left_out);
  const std::string note = note_of(plot, drawables, left_out);

  const std::vector<double> places = shown_values(plot, &Series::x);
  const AxisLayout across = lay_out(plot.x, places, 0.1);
  std::string body = title_script(plot.title, note, plot.x.second ? 0.075 : 0.0);
  body += axis_script("x", plot.x, across);
  if (plot.x.second) body += second_script(plot.x, across, places);
  const std::vector<const Series*> away = runaways(plot);
  const auto stays = [&](const Series& series) {
    return std::find(away.begin(), away.end(), &series) == away.end();
  };
  std::vector<double> heights = shown_values(plot, &Series::y, away);
  for (const Series& series : plot.series)
    for (const auto* edge : {&series.low, &series.high})
      if (stays(series)) heights.insert(heights.end(), edge->begin(), edge->end());
  body += axis_script("y", plot.y, lay_out(plot.y, heights, 0.4));
  body += key_script(plot);
  body += fmt::format(
      "set grid xtics ytics back lt 1 lw 1 lc rgb '#e0e0e0'\n"
      "set xtics nomirror\nset ytics nomirror\nset border {} lw 1 lc rgb '#444444'\n",
      plot.x.second ? 7 : 3);
  const std::vector<std::size_t> colours = colours_of(plot);
  std::vector<std::size_t> blocks(drawables.size());
  std::size_t block = 0;
  std::vector<std::string> curves;
  for (std::size_t i = 0; i < drawables.size(); ++i) {
    if (drawables[i].shown == 0) continue;
    blocks[i] = block++;
    // The key keeps the order of the series, whatever lies on top.
    if (!plot.series[i].label.empty())
      curves.push_back(fmt::format("  keyentry {} title {}", style_of(plot.series[i], colours[i]),
                                   enhanced(plot.series[i].label)));
  }
  const auto draw = [&](std::size_t i, std::string_view columns, const std::string& style) {
    curves.push_back(fmt::format("  '{}.dat' index {} using {} {} notitle", plot.name, blocks[i],
                                 columns, style));
  };
  for (std::size_t i = 0; i < drawables.size(); ++i)
    if (drawables[i].shown > 0 && !plot.series[i].low.empty())
      draw(i, "1:3:4",
           fmt::format("with filledcurves lc rgb '{}' fs transparent solid {:.2g} noborder",
                       kColours[colours[i] % kColours.size()], band_opacity(plot)));
  for (const std::size_t i : drawing_order(plot))
    if (drawables[i].shown > 0) draw(i, "1:2", style_of(plot.series[i], colours[i]));
  if (curves.empty()) {
    body += "set label 3 'no value to show' at graph 0.5,0.5 center\n";
    curves.push_back("  1/0 notitle");
  }
  body += fmt::format("plot \\\n{}\n", fmt::join(curves, ", \\\n"));
  write_file(folder / (plot.name + ".dat"), data);
  write_file(folder / (plot.name + ".gp"), script_for_both(plot.name, body));
}

}  // namespace fp8lab
