#pragma once
// All JSON that is read: with a limit of depth, each name once, and messages of this project.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_keys.hpp"
#include "fp8lab/core/printable.hpp"

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

/// The same value with every text such that JSON can hold it: bytes that are not UTF-8 as `\\xff`.
template <class Json>
Json json_in_utf8(const Json& value) {
  if (value.is_string()) return as_utf8(value.template get_ref<const std::string&>());
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& element : value) list.push_back(json_in_utf8(element));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [key, element] : value.items()) object[as_utf8(key)] = json_in_utf8(element);
  return object;
}

/// The text of a value that may hold any bytes, as paths do: the library's own throws for those
/// that are not UTF-8. `indent` as the library takes it.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  try {
    return value.dump(indent);
  } catch (const nlohmann::json::type_error&) {
    return json_in_utf8(value).dump(indent);
  }
}

/// The same for data, which no other text may replace. Throws `Error` that starts with `where` for
/// bytes that are not UTF-8.
template <class Json>
std::string exact_json_text(const Json& value, const std::string& where) {
  try {
    return value.dump();
  } catch (const nlohmann::json::type_error&) {
    throw Error(where, "names and texts in UTF-8, which JSON needs",
                json_text(value).substr(0, 200));
  }
}

}  // namespace fp8lab
