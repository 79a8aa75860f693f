#pragma once
// What commands print that may hold names of files and tensors.

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/core/printable.hpp"

namespace fp8lab::cli {

/// Texts as `printable` gives them; anything else unchanged.
template <class T>
decltype(auto) said(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return printable(std::string_view(value));
  else
    return (value);
}

template <class T>
using Said = std::remove_cvref_t<decltype(said(std::declval<const T&>()))>;

/// `fmt::print` with every argument that is text made safe for a terminal: a name can neither end a
/// line nor hold an escape. The format string is the program's own.
template <class... Arguments>
void say(std::FILE* file, fmt::format_string<Said<Arguments>...> format,
         const Arguments&... arguments) {
  fmt::vprint(file, format, fmt::make_format_args(said(arguments)...));
}

template <class... Arguments>
void say(fmt::format_string<Said<Arguments>...> format, const Arguments&... arguments) {
  say(stdout, format, arguments...);
}

/// What each gate of a list, with its name, text and source, says of an output.
template <class Gates>
void say_gates(const Gates& gates, const std::vector<bool>& passes) {
  say("shipped gates on this output:\n");
  for (std::size_t i = 0; i < passes.size(); ++i)
    say("  {:<21} {:<6} {} ({})\n", gates[i].name, passes[i] ? "passes" : "fails", gates[i].text,
        gates[i].source);
}

}  // namespace fp8lab::cli
