#include "lab/plots/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace fp8lab {
namespace {

std::string_view superscript(char c) {
  constexpr std::array<std::string_view, 10> kDigits{"⁰", "¹", "²", "³", "⁴",
                                                     "⁵", "⁶", "⁷", "⁸", "⁹"};
  if (c == '-') return "⁻";
  if (c == '.') return "·";
  if (c == 'T') return "ᵀ";
  return kDigits[static_cast<std::size_t>(c - '0')];
}

}  // namespace

std::size_t raised_after(std::string_view text, std::size_t at) {
  if (text[at] != '^') return 0;
  const std::string_view rest = text.substr(at + 1);
  const auto digit = [&](std::size_t i) {
    return i < rest.size() && rest[i] >= '0' && rest[i] <= '9';
  };
  if (rest.starts_with('T')) {
    const bool ends = rest.size() < 2 || std::isalnum(static_cast<unsigned char>(rest[1])) == 0;
    return ends ? 1 : 0;
  }
  std::size_t length = rest.starts_with('-') ? 1 : 0;
  if (!digit(length)) return 0;
  while (digit(length) || (length < rest.size() && rest[length] == '.' && digit(length + 1)))
    ++length;
  return length;
}

std::string typeset(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t raised = raised_after(text, i);
    if (raised == 0) out += text[i];
    for (const char c : text.substr(i + 1, raised)) out += superscript(c);
    i += raised;
  }
  return out;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::size_t widest_of(const std::vector<std::string>& texts) {
  std::size_t columns = 0;
  for (const std::string& text : texts) columns = std::max(columns, columns_of(text));
  return columns;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    std::string& line = lines.back();
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > width) {
      lines.emplace_back(word);
    } else {
      if (!line.empty()) line += ' ';
      line += word;
    }
  }
  return lines;
}

}  // namespace fp8lab
