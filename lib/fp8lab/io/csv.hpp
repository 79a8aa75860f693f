#pragma once
// Text with comma-separated cells.

#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// A text as a cell, quoted where it must be. A spreadsheet runs a text that begins with `=`, `+`,
/// `-`, `@`, a tab or a carriage return, and is no number: it gets an apostrophe in front.
/// Where such a text already has apostrophes in front, it gets one more.
std::string csv_cell(std::string_view text);

/// Reads rows of cells as `csv_cell` writes them: the heading, then the rows. Throws
/// `Error` for an open quote or a row of another length than the first.
std::vector<std::vector<std::string>> parse_csv(std::string_view text);

}  // namespace fp8lab
