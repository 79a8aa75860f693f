#pragma once
// Pieces of gnuplot scripts that plots and heat maps share.

#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/plots/tics.hpp"

namespace fp8lab {

/// How many characters the `^` at `at` raises, in texts of plots and reports: a number, or a
/// capital T that ends a word. 0 if there is no `^`, or something else behind it.
std::size_t raised_after(std::string_view text, std::size_t at);

/// `text` as a gnuplot string that shows it as it is: what the enhanced mode
/// would take for a command is escaped, and line breaks are kept. Only `^` before
/// a number or a capital T raises it.
std::string enhanced(std::string_view text);

/// `text` with its line breaks made into spaces.
std::string one_line(std::string_view text);

/// How many columns `text` takes: its code points.
std::size_t columns_of(std::string_view text);

/// `text` in lines of at most `width` columns, broken at blanks where it has them.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// The title at the top left, wrapped at the plot's width, with `note` in
/// smaller letters below, and the top margin that both need (labels 1 and 2),
/// with `room` (a share of the picture's height) left for an axis at the top.
std::string title_script(std::string_view title, std::string_view note, double room = 0.0);

/// `set xtics (...)` for `axis` x, y or cb; where gnuplot chooses, at most
/// their format.
std::string tics_script(std::string_view axis, const AxisLayout& layout);

/// The script that draws `body` (settings and the plot command) to `NAME.svg` and `NAME.png`; with
/// the variable `pdf` set (`gnuplot -e pdf=1 NAME.gp`), to `NAME.pdf` for papers too.
std::string script_for_both(std::string_view name, std::string_view body);

}  // namespace fp8lab
