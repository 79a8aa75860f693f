#include "fp8lab/core/model_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kForm = "[NAME=]BASE[:PARAMETER=VALUE,...]";

std::string quoted(std::string_view text) { return fmt::format("'{}'", text); }

bool is_part(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' ||
           c == '-';
  });
}

std::string part(std::string_view argument, std::string_view whole, std::string_view text) {
  if (!is_part(text))
    throw Error(argument, fmt::format("{}, of letters, digits, '_', '.', '+' and '-'", kForm),
                quoted(whole));
  return std::string(text);
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Whether a part of a list goes on with the parameters of the model before it.
bool continues(std::string_view before, std::string_view part) {
  return before.find(':') != std::string_view::npos && part.find('=') != std::string_view::npos &&
         part.find(':') == std::string_view::npos;
}

}  // namespace

ModelText ModelText::parse(std::string_view argument, std::string_view text) {
  if (text.size() > kMostModelText)
    throw Error(argument, fmt::format("at most {} characters", kMostModelText),
                fmt::format("{}", text.size()));
  ModelText parts;
  const auto colon = text.find(':');
  const std::string_view head = text.substr(0, colon);
  const auto named = head.find('=');
  if (named != std::string_view::npos) parts.name = part(argument, text, head.substr(0, named));
  parts.base =
      part(argument, text, named == std::string_view::npos ? head : head.substr(named + 1));
  if (colon == std::string_view::npos) return parts;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const auto equals = item.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
    Item one{part(argument, text, item.substr(0, equals)), part(argument, text, value)};
    for (const Item& known : parts.items)
      if (known.parameter == one.parameter)
        throw Error(argument, "each parameter once",
                    fmt::format("{} twice in '{}'", one.parameter, text));
    parts.items.push_back(std::move(one));
    if (comma == std::string_view::npos) return parts;
    rest.remove_prefix(comma + 1);
  }
}

std::string ModelText::text() const {
  std::string text = name.empty() ? base : fmt::format("{}={}", name, base);
  for (std::size_t i = 0; i < items.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? ":" : ",", items[i].parameter, items[i].value);
  return text;
}

void ModelText::set(std::string_view parameter, std::string_view value) {
  for (Item& item : items) {
    if (item.parameter != parameter) continue;
    item.value = value;
    return;
  }
  items.push_back({std::string(parameter), std::string(value)});
}

std::vector<std::string> split_model_list(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto comma = text.find(',');
    const std::string_view part = trim(text.substr(0, comma));
    if (!parts.empty() && continues(parts.back(), part))
      parts.back().append(",").append(part);
    else
      parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace fp8lab
