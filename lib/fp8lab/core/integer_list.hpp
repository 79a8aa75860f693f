#pragma once
// Integers in one text, as users write shapes and shares: 16x16x64, 0/4.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fp8lab {

/// The `count` decimal integers of `text`, one `separator` between two of them. Nothing else may
/// stand there: no blanks, no '+', no other digits, nothing that no int64 holds. Throws `Error`
/// naming `argument` for any other text, with `form` as what was expected.
std::vector<std::int64_t> parse_integers(std::string_view argument, std::string_view text,
                                         char separator, std::size_t count, std::string_view form);

}  // namespace fp8lab
