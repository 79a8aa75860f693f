#include "lab/sweep/grid_file.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <sstream>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/toml_text.hpp"

namespace fp8lab {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view expected, const toml::node& got) {
  std::ostringstream text;
  text << toml::node_view<const toml::node>(got);
  throw Error(fmt::format("grid file: {}", key), expected, text.str());
}

template <class T>
T typed(std::string_view key, std::string_view expected, const toml::node& node) {
  if (const std::optional<T> value = node.value_exact<T>()) return *value;
  refuse(key, expected, node);
}

std::uint64_t seed_of(std::string_view key, const toml::node& node) {
  const auto value = typed<std::int64_t>(key, "an integer", node);
  if (value < 0) refuse(key, "an integer from 0 on", node);
  return static_cast<std::uint64_t>(value);
}

/// A value as `Parameters::set` and `parse_axis` read it.
std::string text_of(std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (node.is_array() || node.is_table()) refuse(key, "a value, or a list of values", node);
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

/// A value, or those of a list with commas between them.
std::string items_of(std::string_view where, const toml::node& value) {
  const toml::array* array = value.as_array();
  if (array == nullptr) return text_of(where, value);
  std::string items;
  for (const toml::node& item : *array) {
    if (!items.empty()) items += ',';
    const toml::array* list = item.as_array();  // a list as one value of an axis
    items += list == nullptr ? text_of(where, item) : '[' + items_of(where, item) + ']';
  }
  return items;
}

/// `key=value` or `key=value,value` for each member, in the order of the file.
std::vector<std::string> members(std::string_view name, const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr) refuse(name, "a table", node);
  std::vector<std::pair<toml::source_position, std::string>> by_position;
  for (const auto& [key, value] : *table) {
    const std::string where = fmt::format("{}.{}", name, key.str());
    if (const toml::table* parts = value.as_table()) {  // accumulators.F = ...
      for (const auto& [part, of_part] : *parts)
        by_position.emplace_back(
            of_part.source().begin,
            fmt::format("{}.{}={}", key.str(), part.str(),
                        items_of(fmt::format("{}.{}", where, part.str()), of_part)));
      continue;
    }
    by_position.emplace_back(value.source().begin,
                             fmt::format("{}={}", key.str(), items_of(where, value)));
  }
  std::sort(by_position.begin(), by_position.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (auto& [position, text] : by_position) texts.push_back(std::move(text));
  return texts;
}

}  // namespace

GridFile parse_grid_file(std::string_view toml) {
  const toml::table document = parse_toml(toml, "grid file");
  GridFile file;
  for (const auto& [key, node] : document) {
    const std::string_view name = key.str();
    if (name == "experiment")
      file.experiment = typed<std::string>(name, "text", node);
    else if (name == "repeat")
      file.repeats = typed<std::int64_t>(name, "an integer", node);
    else if (name == "seed")
      file.seed = seed_of(name, node);
    else if (name == "quick")
      file.quick = typed<bool>(name, "true or false", node);
    else if (name == "set")
      file.assignments = members(name, node);
    else if (name == "axes")
      file.axes = members(name, node);
    else
      throw Error("grid file", "experiment, repeat, seed, quick, [set] or [axes]",
                  fmt::format("'{}'", name));
  }
  return file;
}

}  // namespace fp8lab
