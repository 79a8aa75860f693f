#pragma once
// Names of an enum's values: an array in the order of the values, beside the enum.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace fp8lab {

/// The place of `name` among `names`. Throws `Error` for `argument`, with all of them.
std::size_t find_name(std::span<const std::string_view> names, std::string_view argument,
                      std::string_view name);

/// The value of `Enum` that is called `name`; throws as above.
template <typename Enum, std::size_t N>
Enum find_enumerator(const std::array<std::string_view, N>& names, std::string_view argument,
                     std::string_view name) {
  return static_cast<Enum>(find_name(names, argument, name));
}

}  // namespace fp8lab
