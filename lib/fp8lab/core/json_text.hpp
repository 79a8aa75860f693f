#pragma once
// All JSON that is read: with a limit of depth, each name once, and messages of this project.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_keys.hpp"

namespace fp8lab {

/// The message of an exception of the JSON library, without its number.
inline std::string json_reason(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

/// Throws `Error` that starts with `where`, also for duplicate keys and deep nesting.
template <class Json>
Json parse_json(std::string_view text, const std::string& where, int most_depth = kMostJsonDepth) {
  require_unique_keys(text, where, most_depth);
  return Json::parse(text.begin(), text.end());
}

/// The same, but nothing for text that is not JSON.
template <class Json>
std::optional<Json> parse_if_json(std::string_view text, const std::string& where,
                                  int most_depth = kMostJsonDepth) {
  if (!json_fault(text, where, most_depth).empty()) return std::nullopt;
  return Json::parse(text.begin(), text.end());
}

}  // namespace fp8lab
