#pragma once
// Reading JSON files with complaints that say where: `FILE: key[2]: expected text, got number`.

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {

/// A JSON value and where it stands, so that every complaint can say so.
class JsonNode {
 public:
  JsonNode(const nlohmann::ordered_json& json, std::string place)
      : json_(&json), place_(std::move(place)) {}

  [[nodiscard]] bool has(const char* key) const {
    return json_->is_object() && json_->contains(key);
  }
  [[nodiscard]] JsonNode operator[](const char* key) const {
    if (!json_->is_object()) wrong("an object");
    const auto found = json_->find(key);
    if (found == json_->end()) throw Error(fmt::format("{}: {} is missing", place_, key));
    return {*found, fmt::format("{}: {}", place_, key)};
  }
  [[nodiscard]] std::vector<JsonNode> elements() const {
    if (!json_->is_array()) wrong("a list");
    std::vector<JsonNode> nodes;
    for (const nlohmann::ordered_json& element : *json_)
      nodes.emplace_back(element, fmt::format("{}[{}]", place_, nodes.size()));
    return nodes;
  }
  [[nodiscard]] std::string text() const {
    if (!json_->is_string()) wrong("text");
    return json_->get<std::string>();
  }
  [[nodiscard]] bool flag() const {
    if (!json_->is_boolean()) wrong("true or false");
    return json_->get<bool>();
  }
  [[nodiscard]] std::uint64_t count() const {
    if (!json_->is_number_unsigned()) wrong("a number that is not negative");
    return json_->get<std::uint64_t>();
  }
  [[nodiscard]] double real() const {
    if (!json_->is_number()) wrong("a number");
    return json_->get<double>();
  }
  /// The name of a file of this folder.
  [[nodiscard]] std::string file_name() const {
    std::string name = text();
    require_file_name(place_, name);
    return name;
  }
  /// The members of an object, each value for people.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> members() const {
    if (!json_->is_object()) wrong("an object");
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const auto& [key, value] : json_->items())
      pairs.emplace_back(key, value.is_string() ? value.get<std::string>() : for_people(value));
    return pairs;
  }

 private:
  [[noreturn]] void wrong(const char* expected) const {
    throw Error(place_, expected, json_->type_name());
  }
  static std::string for_people(const nlohmann::ordered_json& value) {
    if (!value.is_array()) return json_text(value);
    std::string list;
    for (const nlohmann::ordered_json& element : value) {
      if (!list.empty()) list += ", ";
      list += element.is_string() ? element.get<std::string>() : json_text(element);
    }
    return list;
  }

  const nlohmann::ordered_json* json_;
  std::string place_;
};

}  // namespace fp8lab
