#pragma once
// Text with comma-separated cells.

#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// Reads rows of cells, which may be quoted: the heading, then the rows. Throws
/// `Error` for an open quote or a row of another length than the first.
std::vector<std::vector<std::string>> parse_csv(std::string_view text);

}  // namespace fp8lab
