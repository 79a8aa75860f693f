#pragma once
// Names of the caller's arguments in messages. The library does not know their spelling: a
// parameter in C++, an option of a command, a keyword in Python.

#include <functional>
#include <string>
#include <string_view>

namespace fp8lab {

/// `name`, or `name=value`, between backquotes. `name`: lower-case letters, digits and
/// underscores, from a letter; `value`: letters, digits and `._-`.
std::string argument(std::string_view name, std::string_view value = {});

/// Spells an argument; `value` is empty if the message has none.
using ArgumentSpelling = std::function<std::string(std::string_view name, std::string_view value)>;

/// The message with every argument spelled by `spell`. Other text between backquotes is kept.
std::string spell_arguments(std::string_view message, const ArgumentSpelling& spell);

}  // namespace fp8lab
