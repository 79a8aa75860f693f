#pragma once
// What a picture of a plot shows of its values, and how: order, colours, ranges, notes.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lab/plots/plot.hpp"

namespace fp8lab {

/// As many colours as the palette has; more series have them again, and other marks or dashes.
inline constexpr std::size_t kPalette = 7;
/// Shades of an ordered quantity.
inline constexpr std::size_t kMostShades = 7;

/// Gives the series of plots that stand together their colours, those that have one excepted. A
/// thing, which is the label up to its first comma, has one colour in all of them: the first of the
/// palette that is free when it first appears. Labels that differ in one number only ("tile of
/// 32"), three to `kMostShades` of them, are an ordered quantity, whose shades go from dark to
/// light. Throws `Error` if `like` is no index of a series that has a colour of its own.
void assign_colours(std::span<Plot> plots);

/// The colour of each series, assigned where it has none.
std::vector<SeriesColour> colours_of(const Plot& plot);

/// The indices of the series, first drawn first: later ones lie on top. The first series, of which
/// the plot speaks, is above the others, and dashed curves are above all: lines that coincide stay
/// visible through the gaps.
std::vector<std::size_t> drawing_order(const Plot& plot);

/// Whether an axis can show `value`: finite, and positive on a log axis.
bool can_show(const Axis& axis, double value);

/// The values (x, or y with the edges of bands) of all points that both axes can show, but those of
/// the series in `without`.
std::vector<double> shown_values(const Plot& plot, bool of_x,
                                 const std::vector<std::size_t>& without = {});

/// Curves that run away on a linear axis, where all others would lie on its edge: the picture shows
/// the others, and says so. At least one stays. The one that is largest comes first.
std::vector<std::size_t> runaways(const Plot& plot);

/// What the picture leaves out, for a line below its title; empty if nothing.
std::string note_of(const Plot& plot);
std::string note_of(const HeatMap& map);

/// Where the colours of a heat map begin and end. They end early if a few values (up to a fifth of
/// the cells) are so much larger that all others would have nearly one colour (less than 0.15 of
/// the range): then the largest of the others is the end.
struct ColourRange {
  double low = 0.0;
  double high = 1.0;
  std::size_t beyond = 0;  ///< cells above `high`, which have its colour
};
ColourRange colour_range(const HeatMap& map);

/// A number for each cell, four digits at most. Where colours are linear, digits below a
/// thousandth of the largest value's decade are left out: they would be noise beside the others.
/// Empty for NaN.
std::vector<std::string> cell_texts(const HeatMap& map);

}  // namespace fp8lab
