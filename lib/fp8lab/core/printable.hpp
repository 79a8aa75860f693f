#pragma once
// Text of others, such as names in files, made safe for terminals, logs and JSON.

#include <string>
#include <string_view>

namespace fp8lab {

/// The text with what could act on a terminal or pass for another line written out: control
/// characters as `\n`, `\t`, `\x1b`, marks of text direction and of line ends as `\u202e`, and
/// bytes that are not UTF-8 as `\xff`. Other text is kept, a backslash too, so that twice is once.
std::string printable(std::string_view text);

/// The text with bytes that are not UTF-8 written as `\xff`: what JSON can hold.
std::string as_utf8(std::string_view text);

}  // namespace fp8lab
