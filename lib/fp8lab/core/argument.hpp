#pragma once
// How messages name arguments of the caller, whose spelling the library does not know: a
// parameter in C++, an option of a command, a keyword in Python.

#include <functional>
#include <string>
#include <string_view>

namespace fp8lab {

/// `name`, or `name=value`, between backquotes. `name`: lower-case letters, digits and
/// underscores, from a letter; `value`: letters, digits and `._-`.
std::string argument(std::string_view name, std::string_view value = {});

/// Spells an argument; `value` is empty where the message has none.
using ArgumentSpelling = std::function<std::string(std::string_view name, std::string_view value)>;

/// The message with `spell` in the place of every argument. Other text between backquotes stays.
std::string spell_arguments(std::string_view message, const ArgumentSpelling& spell);

}  // namespace fp8lab
