#include "fp8lab/core/argument.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fp8lab {
namespace {

// Without the locale that <cctype> asks.
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view text) {
  return !text.empty() && is_lower(text.front()) &&
         std::ranges::all_of(text, [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool is_value(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

std::string argument(std::string_view name, std::string_view value) {
  return value.empty() ? fmt::format("`{}`", name) : fmt::format("`{}={}`", name, value);
}

std::string spell_arguments(std::string_view message, const ArgumentSpelling& spell) {
  std::string text;
  while (!message.empty()) {
    const std::size_t open = message.find('`');
    const std::size_t close = open == std::string_view::npos ? open : message.find('`', open + 1);
    if (close == std::string_view::npos) break;
    const std::string_view inside = message.substr(open + 1, close - open - 1);
    const std::size_t equals = inside.find('=');
    const std::string_view name = inside.substr(0, equals);
    const bool has_value = equals != std::string_view::npos;
    const std::string_view value = has_value ? inside.substr(equals + 1) : std::string_view{};
    text += message.substr(0, open);
    if (is_name(name) && (!has_value || is_value(value)))
      text += spell(name, value);
    else
      text += message.substr(open, close + 1 - open);
    message.remove_prefix(close + 1);
  }
  return text.append(message);
}

}  // namespace fp8lab
