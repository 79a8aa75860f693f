#pragma once
// Numbers with what they count.

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace fp8lab {

/// "1 row", "2 rows": for nouns with a regular plural.
template <std::integral T>
std::string counted(T count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace fp8lab
