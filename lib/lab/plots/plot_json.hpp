#pragma once
// A plot as a Vega-Lite specification: the one description from which the report's page, the files
// and notebooks are drawn.

#include <string>

#include "lab/plots/plot.hpp"

namespace fp8lab {

/// The specification on one line. Its data has every value in full, those that are not finite as
/// null: of a plot {series (the index in `labels`), x, y}, with low and high where it has bands, an
/// object a series; of a heat map {row (from the bottom), column, value, text (the number in the
/// cell)}, an object a row. What it says of itself for programs is in `usermeta`: {kind: "plot",
/// labels, x, y} or {kind: "heat_map", columns, rows, x, y, value}, with the labels of axes. The
/// parameters `log_x` and `log_y` say whether values of 0 and below are left out; `zoom` and
/// `shown` are selections: a part of the axes, and the series pressed in the legend. Throws `Error`
/// as `colours_of` does, for a name that is not a plain file name, series whose x and y (or bands)
/// differ in length, a second scale without a positive unit, or a heat map with the wrong number of
/// values.
std::string plot_json(const Plot& plot);
std::string plot_json(const HeatMap& map);

}  // namespace fp8lab
