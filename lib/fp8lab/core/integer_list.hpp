#pragma once
// Lists of integers as text, such as shapes and shards: 16x16x64, 0/4.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fp8lab {

/// The `count` decimal integers of `text`, separated by `separator`. Blanks, '+', other digits and
/// integers outside int64 are not allowed. Throws `Error` that names `argument` for any other text,
/// with `form` as the expected form.
std::vector<std::int64_t> parse_integers(std::string_view argument, std::string_view text,
                                         char separator, std::size_t count, std::string_view form);

}  // namespace fp8lab
