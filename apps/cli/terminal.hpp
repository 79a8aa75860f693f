#pragma once
// What texts for people go by: the width of the terminal, and whether it shows colours.

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::cli {

/// Columns of the terminal that `stream` is, 40 at least. Elsewhere those that COLUMNS says, or 80.
std::size_t columns_of_terminal(std::FILE* stream = stdout);

/// Whether `stream` is a terminal that shows colours, and NO_COLOR is not set.
bool shows_colours(std::FILE* stream = stdout);

/// `text` in bold, or in grey, where standard output shows colours.
std::string bold(std::string_view text);
std::string faint(std::string_view text);

/// `text` in lines of at most `columns`, broken at blanks, and within words that are longer.
std::vector<std::string> folded(std::string_view text, std::size_t columns);

/// The same as one text, each line with its end: `start` stands before the first line, as many
/// blanks before the others.
std::string paragraph(std::string_view start, std::string_view text, std::size_t columns);

}  // namespace fp8lab::cli
