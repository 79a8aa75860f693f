#pragma once
// What JSON allows and a table of names must not: the same name twice.

#include <string>
#include <string_view>

namespace fp8lab {

/// Throws `Error` that starts with `where` for text that is not JSON, an object with a key that
/// appears twice (parsers keep one of the two, silently), and nesting of more than `most_depth`
/// objects and lists. Linear in the text.
void require_unique_keys(std::string_view text, const std::string& where, int most_depth);

}  // namespace fp8lab
