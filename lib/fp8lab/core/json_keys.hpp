#pragma once
// Checks JSON text before it is parsed: depth, and duplicate names, which JSON allows.

#include <string>
#include <string_view>

namespace fp8lab {

/// The limit where no smaller one is given. Values are copied and written by recursion.
inline constexpr int kMostJsonDepth = 64;

/// Why `text` is not JSON, or nothing. Throws `Error` that starts with `where` for an object with
/// a duplicate key (parsers silently keep one of the two), and nesting deeper than `most_depth`
/// objects and lists. The time is linear in the text, and there is no recursion.
std::string json_fault(std::string_view text, const std::string& where, int most_depth);

/// The same, and throws for text that is not JSON.
void require_unique_keys(std::string_view text, const std::string& where, int most_depth);

}  // namespace fp8lab
