#pragma once
// Reads JSON from files, with error messages of this project.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

/// The message of an exception of the JSON library, without its number.
inline std::string json_reason(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

/// Throws `Error` that starts with `where`.
template <class Json>
Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: not JSON: {}", where, json_reason(error)));
  }
}

}  // namespace fp8lab
