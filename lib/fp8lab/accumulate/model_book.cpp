// Definitions in files, by name.

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/toml_text.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kTable = "accumulator";
constexpr std::string_view kBase = "base";
constexpr std::string_view kForm =
    "[accumulator.NAME] with base = \"BASE\" and PARAMETER = VALUE lines";

/// `changes` on top of `on`: what is given again is put in the place of what was, whatever its
/// spelling, and the name stays where there is no other.
ModelText merged(const ModelText& on, const ModelText& changes) {
  ModelText result = on;
  if (!changes.name.empty()) result.name = changes.name;
  for (const ModelText::Item& change : changes.items) {
    const std::string_view name = find_accumulator_parameter(change.parameter).name;
    const auto known = std::find_if(
        result.items.begin(), result.items.end(),
        [&](const auto& item) { return find_accumulator_parameter(item.parameter).name == name; });
    if (known == result.items.end())
      result.items.push_back(change);
    else
      *known = change;
  }
  return result;
}

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

/// One table or object, as `(key, value)` pairs of text.
template <class Members>
ModelText definition_in(std::string_view name, const Members& members) {
  ModelText definition{.name = std::string(name), .base = {}, .items = {}};
  for (const auto& [key, value] : members) {
    if (key == kBase)
      definition.base = value;
    else
      definition.set(key, value);
  }
  require(!definition.base.empty(), fmt::format("{}.base", name), "an instruction or a kind",
          "none");
  return definition;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A table's members in the order of the file.
std::vector<std::pair<std::string_view, const toml::node*>> in_order(const toml::table& table) {
  std::vector<std::pair<std::string_view, const toml::node*>> members;
  for (const auto& [key, node] : table) members.emplace_back(key.str(), &node);
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin < b.second->source().begin;
  });
  return members;
}

}  // namespace

void ModelBook::add(std::string_view file, const ModelText& definition) {
  try {
    require(!find(definition.name), "name", "each name once",
            fmt::format("'{}' twice", definition.name));
    const std::optional<ModelText> on = find(definition.base);
    const std::string text = (on ? merged(*on, definition) : definition).text();
    (void)defined_model(text);
    places_.emplace(definition.name, definitions_.size());
    definitions_.push_back(text);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: [{}.{}]: {}", file, kTable, definition.name, error.what()));
  }
}

void ModelBook::add_toml(std::string_view file, std::string_view text) {
  const toml::table document = parse_toml(text, file);
  for (const auto& [key, node] : document)
    require(key.str() == kTable && node.is_table(), file, kForm, fmt::format("'{}'", key.str()));
  const toml::table* all = document[kTable].as_table();
  if (all == nullptr || all->empty()) throw Error(file, kForm, "no definition");
  for (const auto& [name, node] : in_order(*all)) {
    const toml::table* table = node->as_table();
    if (table == nullptr) throw Error(file, kForm, fmt::format("{}.{}", kTable, name));
    Pairs pairs;
    for (const auto& [key, value] : in_order(*table)) pairs.emplace_back(key, text_of(*value));
    add(file, definition_in(name, pairs));
  }
}

void ModelBook::add_json(std::string_view file, std::string_view text) {
  using Json = nlohmann::ordered_json;
  constexpr std::string_view kJsonForm =
      R"({"accumulator": {"NAME": {"base": "BASE", "PARAMETER": VALUE}}})";
  const auto read = parse_if_json<Json>(text, std::string(file));
  const Json document = read.value_or(nullptr);
  const bool fits = document.is_object() && document.size() == 1 && document.contains(kTable) &&
                    document.at(std::string(kTable)).is_object() &&
                    !document.at(std::string(kTable)).empty();
  require(fits, file, kJsonForm, read ? "another form" : "no JSON");
  for (const auto& [name, object] : document.at(std::string(kTable)).items()) {
    require(object.is_object(), file, kJsonForm, fmt::format("{}: no object", name));
    Pairs pairs;
    for (const auto& [key, value] : object.items()) pairs.emplace_back(key, text_of(value));
    add(file, definition_in(name, pairs));
  }
}

std::optional<ModelText> ModelBook::find(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return std::nullopt;
  return ModelText::parse("model", definitions_[place->second]);
}

std::string ModelBook::resolve(std::string_view text) const {
  if (const std::optional<ModelText> whole = find(text)) return whole->text();
  if (definitions_.empty() || !is_definition(text)) return std::string(text);
  const ModelText parts = ModelText::parse("model", text);
  const std::optional<ModelText> on = find(parts.base);
  return on ? merged(*on, parts).text() : std::string(text);
}

}  // namespace fp8lab
