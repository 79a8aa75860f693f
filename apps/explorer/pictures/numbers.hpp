#pragma once
// Numbers that users type into the page.

#include <cstddef>
#include <string_view>
#include <vector>

namespace fp8lab::explorer {

/// The numbers of a text, blanks, commas or semicolons between them. Throws `Error` naming
/// `argument` for a word that is no finite number, or for fewer than 1 or more than `most` of them.
std::vector<double> numbers_of(std::string_view argument, std::string_view text, std::size_t most);

}  // namespace fp8lab::explorer
