#include "fp8lab/core/printable.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

namespace fp8lab {
namespace {

struct Character {
  std::uint32_t code;
  std::size_t bytes;
};

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

/// The first character by Unicode's table of well-formed sequences: no longer form of a shorter
/// one, no half of a pair.
std::optional<Character> first_of(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) return Character{first, 1};
  const std::size_t bytes = first >= 0xc2 && first < 0xe0   ? 2
                            : first >= 0xe0 && first < 0xf0 ? 3
                            : first >= 0xf0 && first < 0xf5 ? 4
                                                            : 0;
  if (bytes == 0 || text.size() < bytes) return std::nullopt;
  std::uint32_t code = first & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return std::nullopt;
    code = code << 6 | (byte_at(text, i) & 0x3fU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return std::nullopt;
  return Character{code, bytes};
}

/// Controls of both sets, line and paragraph separators, marks of direction, the byte order mark.
bool acts(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string written_out(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  return code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

std::string converted(std::string_view text, bool keeps_controls) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::optional<Character> character = first_of(text);
    const std::size_t bytes = character ? character->bytes : 1;
    if (!character)
      out += fmt::format("\\x{:02x}", byte_at(text, 0));
    else if (!keeps_controls && acts(character->code))
      out += written_out(character->code);
    else
      out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return converted(text, false); }

std::string as_utf8(std::string_view text) { return converted(text, true); }

}  // namespace fp8lab
