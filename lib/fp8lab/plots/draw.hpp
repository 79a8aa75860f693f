#pragma once
// Draws plots and heat maps with gnuplot: a script and its data go into a
// folder, gnuplot makes an SVG and a PNG of them there. Same values, same bytes.

#include <filesystem>
#include <span>
#include <string>

#include "fp8lab/plots/plot.hpp"

namespace fp8lab {

/// Writes `NAME.gp` and `NAME.dat`. Running gnuplot on the script in `folder`
/// gives `NAME.svg` and `NAME.png` (900 x 560 points, the PNG at 1.5 pixels a
/// point, white background). Points that an axis cannot show (not finite, or
/// <= 0 on a log axis) are left out, and a line below the title counts them.
/// Throws `Error` for a name that is no plain file name, series whose x and y
/// differ in length, a heat map with the wrong number of values, or a folder
/// that cannot be written.
void write_plot(const Plot& plot, const std::filesystem::path& folder);
void write_plot(const HeatMap& map, const std::filesystem::path& folder);

/// Runs gnuplot on `NAME.gp` for all `names`, in `folder`. False if there is no
/// gnuplot to run. Throws `Error` with what gnuplot said if it fails.
bool run_gnuplot(const std::filesystem::path& folder, std::span<const std::string> names);

}  // namespace fp8lab
