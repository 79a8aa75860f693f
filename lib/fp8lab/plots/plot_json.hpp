#pragma once
// A plot as data: what a page, a notebook or another program draws it from.

#include <string>

#include "fp8lab/plots/plot.hpp"

namespace fp8lab {

/// `{"schema": "fp8lab.plot.1", name, title, x, y, series}` on one line. x and y are {label, log,
/// base}, x with second {label, unit} if it has a second scale. A series is {label, style, x, y},
/// and low and high where it has a band, with the values in full, not finite ones as null; colour
/// is its place in the palette where that is not its own index. A heat map has x_label, y_label,
/// value_label, log, columns, rows and values (row by row from the bottom) instead, texts (the
/// number written in each cell), colours (the values at which the colours begin and end) and beyond
/// (cells above that end). Throws `Error` as `colours_of` does.
std::string plot_json(const Plot& plot);
std::string plot_json(const HeatMap& map);

}  // namespace fp8lab
