// Texts that toml++ must refuse, and in which words: linked once with the shared library and once
// with the copy of fp8lab-cuda, which is compiled so that it traps where it reaches what it calls
// unreachable.

#include <toml++/toml.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

struct Refusal {
  std::string_view text;
  std::string_view message;
};

constexpr Refusal kRefusals[] = {
    {"\u00E9 = 1",
     "Error while parsing root table: expected keys, tables, whitespace or comments, saw '\u00E9'"},
    {"a\u00E9 = 1", "Error while parsing key-value pair: expected '=', saw '\u00E9'"},
    {"a.\u00E9 = 1",
     "Error while parsing key: expected bare key starting character or string delimiter, saw "
     "'\u00E9'"},
    {"[\u00E9]",
     "Error while parsing key: expected bare key starting character or string delimiter, saw "
     "'\u00E9'"},
    {"[[\u0142]]",
     "Error while parsing key: expected bare key starting character or string delimiter, saw "
     "'\u0142'"},
    {"[]",
     "Error while parsing table header: tables with blank bare keys are explicitly prohibited"},
    {"x = \u00E9", "Error while parsing value: could not determine value type"},
    {"x = [\u00E9]", "Error while parsing value: could not determine value type"},
    {"x = 1\u00E9", "Error while parsing decimal integer: expected digit, saw '\u00E9'"},
    {"x = 1 \u0499",
     "Error while parsing key-value pair: expected a comment or whitespace, saw '\u0499'"},
    {"x = true\u00E9", "Error while parsing boolean: expected value-terminator, saw '\u00E9'"},
    {"x = 1\u00A0", "Error while parsing key-value pair: expected space or tab, saw '\\u00A0'"},
};

std::string utf8(char32_t code) {
  std::string bytes;
  if (code < 0x800) {
    bytes += static_cast<char>(0xC0U | code >> 6);
  } else {
    bytes += static_cast<char>(0xE0U | code >> 12);
    bytes += static_cast<char>(0x80U | (code >> 6 & 0x3FU));
  }
  bytes += static_cast<char>(0x80U | (code & 0x3FU));
  return bytes;
}

// What the library says of a text; nothing if it takes it.
std::string said(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
    return "";
  } catch (const toml::parse_error& error) {
    return std::string(error.description());
  }
}

}  // namespace

int main() {
  int failures = 0;
  const auto fail = [&](std::string_view text, std::string_view expected, std::string_view got) {
    ++failures;
    std::printf("%.*s: expected \"%.*s\", got \"%.*s\"\n", static_cast<int>(text.size()),
                text.data(), static_cast<int>(expected.size()), expected.data(),
                static_cast<int>(got.size()), got.data());
  };
  for (const Refusal& refusal : kRefusals) {
    const std::string got = said(refusal.text);
    if (got != refusal.message) fail(refusal.text, refusal.message, got);
  }
  // No character beyond ASCII may stand outside strings and comments; inside them each may.
  for (char32_t code = 0xA0; code < 0xFFFE; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;  // halves of pairs
    const std::string character = utf8(code);
    for (const char* before : {"x = 1 ", "x", "[", "x = "}) {
      if (said(before + character).empty()) fail(before + character, "an error", "");
    }
    const std::string inside = "x = \"" + character + "\" # " + character;
    if (const std::string got = said(inside); !got.empty()) fail(inside, "", got);
  }
  return failures == 0 ? 0 : 1;
}
