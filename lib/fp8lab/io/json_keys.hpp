#pragma once
// Checks JSON text for duplicate names, which JSON allows.

#include <string>
#include <string_view>

namespace fp8lab {

/// Throws `Error` that starts with `where` for text that is not JSON, an object with a duplicate
/// key (parsers silently keep one of the two), and nesting deeper than `most_depth` objects and
/// lists. The time is linear in the text.
void require_unique_keys(std::string_view text, const std::string& where, int most_depth);

}  // namespace fp8lab
