#include "lab/experiment/parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/model_text.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/toml_text.hpp"
#include "lab/experiment/model_parameters.hpp"
#include "lab/experiment/properties.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kQuestionKey = "question";
constexpr std::string_view kQuickKey = "quick";
constexpr std::string_view kRangeKey = "range";
// Up to here every integer is a binary64 number.
constexpr double kMostExact = 9007199254740992.0;
constexpr std::string_view kTypeNames[] = {
    "an integer",         "a real number",          "true or false",  "text",
    "a list of integers", "a list of real numbers", "a list of texts"};

std::string_view type_name(const ParameterValue& value) { return kTypeNames[value.index()]; }

std::string position(const toml::source_region& source) {
  return fmt::format("default.toml:{}:{}", source.begin.line, source.begin.column);
}

template <class T>
std::optional<std::vector<T>> list_of(const toml::array& array) {
  std::vector<T> list;
  for (const toml::node& node : array) {
    // An integer may stand for a real number, but nothing else may change its type.
    const bool fits = node.is<T>() || (std::is_same_v<T, double> && node.is_integer());
    if (!fits) return std::nullopt;
    // Not toml++'s own conversion, which gives nothing where the integer has too many digits.
    if constexpr (std::is_same_v<T, double>)
      list.push_back(node.is_integer() ? static_cast<double>(*node.value<std::int64_t>())
                                       : *node.value<double>());
    else
      list.push_back(*node.value<T>());
  }
  return list;
}

/// The value with the type that it has by itself, or nothing where no parameter
/// can have it (dates, tables, mixed, nested and empty lists).
std::optional<ParameterValue> natural_value(const toml::node& node) {
  if (node.is_integer()) return *node.value<std::int64_t>();
  if (node.is_floating_point()) return *node.value<double>();
  if (node.is_boolean()) return *node.value<bool>();
  if (node.is_string()) return *node.value<std::string>();
  const toml::array* array = node.as_array();
  if (array == nullptr || array->empty()) return std::nullopt;
  if (auto list = list_of<std::int64_t>(*array)) return *std::move(list);
  if (auto list = list_of<double>(*array)) return *std::move(list);
  if (auto list = list_of<std::string>(*array)) return *std::move(list);
  return std::nullopt;
}

std::optional<std::int64_t> exact_integer(double value) {
  if (!(std::abs(value) <= kMostExact) || value != std::trunc(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<ParameterValue> exact_integers(const std::vector<double>& values) {
  std::vector<std::int64_t> integers;
  for (const double value : values) {
    const std::optional<std::int64_t> integer = exact_integer(value);
    if (!integer) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

/// The value with the type of `like`, or nothing where it has another one.
std::optional<ParameterValue> value_like(const ParameterValue& like, const toml::node& node) {
  if (const toml::array* array = node.as_array(); array != nullptr && array->empty()) {
    if (std::holds_alternative<std::vector<std::int64_t>>(like)) return std::vector<std::int64_t>{};
    if (std::holds_alternative<std::vector<double>>(like)) return std::vector<double>{};
    if (std::holds_alternative<std::vector<std::string>>(like)) return std::vector<std::string>{};
    return std::nullopt;
  }
  std::optional<ParameterValue> value = natural_value(node);
  if (!value || value->index() == like.index()) return value;
  if (const auto* integer = std::get_if<std::int64_t>(&*value);
      integer != nullptr && std::holds_alternative<double>(like))
    return static_cast<double>(*integer);
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&*value);
      integers != nullptr && std::holds_alternative<std::vector<double>>(like))
    return std::vector<double>(integers->begin(), integers->end());
  if (const auto* real = std::get_if<double>(&*value);
      real != nullptr && std::holds_alternative<std::int64_t>(like))
    return exact_integer(*real);
  if (const auto* reals = std::get_if<std::vector<double>>(&*value);
      reals != nullptr && std::holds_alternative<std::vector<std::int64_t>>(like))
    return exact_integers(*reals);
  return std::nullopt;
}

std::string known_keys(const std::map<std::string, ParameterValue, std::less<>>& values,
                       std::string_view given) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : values) keys.push_back(key);
  if (keys.empty()) return "no key (it has no parameters)";
  // Nothing else lists them.
  if (near_names(keys, given).empty()) return fmt::format("one of {}", fmt::join(keys, ", "));
  return expected_name(keys, given);
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_list(const ParameterValue& value) { return value.index() >= 4; }
bool is_text(const ParameterValue& value) {
  return std::holds_alternative<std::string>(value) ||
         std::holds_alternative<std::vector<std::string>>(value);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\u{:04X}", byte);
    else
      out += c;
  }
  return out + '"';
}

/// What was written after `key=`, made into TOML: bare texts get their quotes,
/// lists their brackets.
std::string complete_toml(const ParameterValue& like, std::string_view text) {
  const bool starts_as_toml = !text.empty() && (text[0] == '"' || text[0] == '\'');
  if (!is_list(like)) return is_text(like) && !starts_as_toml ? quoted(text) : std::string(text);
  if (!text.empty() && text[0] == '[') return std::string(text);
  if (!is_text(like) || starts_as_toml) return fmt::format("[{}]", text);
  std::string list;
  for (const std::string& item : split_model_list(text))
    list += (list.empty() ? "" : ", ") + quoted(item);
  return "[" + list + "]";
}

/// An integer in decimal digits for a parameter of integers, which needs no parser: an axis may
/// have a million of them. Nothing for any other text; what TOML makes of it is for its parser.
std::optional<ParameterValue> plain_integer(const ParameterValue& like, std::string_view text) {
  constexpr std::size_t kMostDigits = 18;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.size() > kMostDigits || digits[0] < '1' || digits[0] > '9')
    return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ptr != end) return std::nullopt;
  if (std::holds_alternative<std::int64_t>(like)) return value;
  if (std::holds_alternative<std::vector<std::int64_t>>(like)) return std::vector{value};
  return std::nullopt;
}

/// The value of a text by TOML's rules; nothing for one that means none of the type of `like`.
std::optional<ParameterValue> parsed(const ParameterValue& like, std::string_view text) {
  const std::string line = "value = " + complete_toml(like, text) + "\n";
  require_toml_depth(line, "set");
  try {
    const toml::table document = toml::parse(line);
    // A second key would have come in through a line break in the value.
    if (document.size() == 1) return value_like(like, *document.get("value"));
  } catch (const toml::parse_error&) {
  }
  return std::nullopt;
}

std::string toml_of(std::int64_t value) { return fmt::format("{}", value); }
std::string toml_of(bool value) { return value ? "true" : "false"; }
std::string toml_of(const std::string& value) { return quoted(value); }
std::string toml_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  // TOML would read a real without a point or an exponent as an integer.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}
template <class T>
std::string toml_of(const std::vector<T>& values) {
  std::string list;
  for (const T& value : values) list += (list.empty() ? "" : ", ") + toml_of(value);
  return "[" + list + "]";
}

void check_number(std::string_view key, const ParameterRange& range, std::int64_t value) {
  require(range.holds(static_cast<double>(value)), key,
          range.interval.empty() ? "an integer" : "an integer in " + range.interval,
          toml_of(value));
}
void check_number(std::string_view key, const ParameterRange& range, double value) {
  require(range.holds(value), key,
          range.interval.empty() ? "a finite number" : "a finite number in " + range.interval,
          toml_of(value));
}

/// Throws `Error` for a value that its range does not hold.
void check(std::string_view key, const ParameterRange& range, const ParameterValue& parameter) {
  const auto check_list = [&](const auto& list) {
    const auto count = static_cast<std::int64_t>(list.size());
    require(count >= range.fewest && count <= range.most, key,
            fmt::format("{} to {} values", range.fewest, range.most), fmt::format("{}", count));
    if constexpr (!std::is_same_v<decltype(list), const std::vector<std::string>&>)
      for (const auto value : list) check_number(key, range, value);
  };
  std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::int64_t> || std::is_same_v<Value, double>)
          check_number(key, range, value);
        else if constexpr (!std::is_same_v<Value, bool> && !std::is_same_v<Value, std::string>)
          check_list(value);
      },
      parameter);
}

using Ranges = std::map<std::string, ParameterRange, std::less<>>;

void check(std::string_view key, const Ranges& ranges, const ParameterValue& value) {
  if (const auto range = ranges.find(key); range != ranges.end()) check(key, range->second, value);
}

template <class Values>
Ranges read_ranges(const toml::table& document, const Values& values) {
  Ranges ranges;
  const toml::node* node = document.get(kRangeKey);
  if (node == nullptr) return ranges;
  if (!node->is_table())
    throw Error(fmt::format("{}: range", position(node->source())), "a table", "a value");
  for (const auto& [key, text] : *node->as_table()) {
    const std::string where = fmt::format("{}: [range]", position(text.source()));
    if (values.find(key.str()) == values.end())
      throw Error(where, known_keys(values, key.str()), fmt::format("'{}'", key.str()));
    require(text.is_string(), fmt::format("{} {}", where, key.str()), "text", "another type");
    ranges.emplace(key.str(), ParameterRange::parse(*text.template value<std::string>()));
  }
  return ranges;
}

template <class Map>
const ParameterValue& find(const Map& values, std::string_view key) {
  const auto found = values.find(key);
  if (found == values.end())
    throw Error("parameter", known_keys(values, key), fmt::format("'{}'", key));
  return found->second;
}

template <class T>
const T& typed(const ParameterValue& value, std::string_view key) {
  if (const T* typed_value = std::get_if<T>(&value)) return *typed_value;
  throw Error(fmt::format("parameter {}", key), type_name(ParameterValue(T{})), type_name(value));
}

}  // namespace

std::string read_question(std::string_view toml) {
  const toml::table document = parse_toml(toml, "default.toml");
  const toml::node* question = document.get(kQuestionKey);
  if (question == nullptr || !question->is_string())
    throw Error("default.toml", "question = \"...\"", question == nullptr ? "none" : "no text");
  return *question->value<std::string>();
}

Parameters Parameters::from_toml(std::string_view toml, bool quick) {
  const FloatEnvironment environment;
  const toml::table document = parse_toml(toml, "default.toml");
  Parameters parameters;
  for (const auto& [key, node] : document) {
    if (key.str() == kQuestionKey || key.str() == kQuickKey || key.str() == kRangeKey ||
        key.str() == kMpiKey)
      continue;
    std::optional<ParameterValue> value = natural_value(node);
    if (!value)
      throw Error(fmt::format("{}: {}", position(node.source()), key.str()),
                  "an integer, a real number, true or false, text, or a non-empty list of one kind",
                  "something else");
    parameters.values_.emplace(key.str(), *std::move(value));
  }
  parameters.ranges_ = read_ranges(document, parameters.values_);
  for (const auto& [key, value] : parameters.values_) check(key, parameters.ranges_, value);
  const toml::node* quick_node = document.get(kQuickKey);
  if (quick_node == nullptr) return parameters;
  if (!quick_node->is_table())
    throw Error(fmt::format("{}: quick", position(quick_node->source())), "a table", "a value");
  for (const auto& [key, node] : *quick_node->as_table()) {
    const auto known = parameters.values_.find(key.str());
    const std::string where = fmt::format("{}: [quick]", position(node.source()));
    if (known == parameters.values_.end())
      throw Error(where, known_keys(parameters.values_, key.str()), fmt::format("'{}'", key.str()));
    std::optional<ParameterValue> value = value_like(known->second, node);
    if (!value)
      throw Error(fmt::format("{} {}", where, key.str()), type_name(known->second),
                  "a value of another type");
    check(key.str(), parameters.ranges_, *value);
    if (quick) known->second = *std::move(value);
  }
  return parameters;
}

void Parameters::set(std::string_view assignment) {
  const FloatEnvironment environment;
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos)
    throw Error("set", "key=value", fmt::format("'{}'", assignment));
  const std::string_view key = trim(assignment.substr(0, equals));
  const std::string_view text = trim(assignment.substr(equals + 1));
  if (const ParameterPart part = parameter_part(key); !part.part.empty())
    return set_model_part(*this, part, text);
  const auto known = values_.find(key);
  if (known == values_.end())
    throw Error("set", known_keys(values_, key), fmt::format("'{}'", key));
  std::optional<ParameterValue> value = plain_integer(known->second, text);
  if (!value) value = parsed(known->second, text);
  if (!value)
    throw Error(fmt::format("set {}", key), fmt::format("{}", type_name(known->second)),
                fmt::format("'{}'", text));
  check(key, ranges_, *value);
  known->second = *std::move(value);
}

std::int64_t Parameters::integer(std::string_view key) const {
  return typed<std::int64_t>(find(values_, key), key);
}

double Parameters::real(std::string_view key) const {
  const ParameterValue& value = find(values_, key);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return typed<double>(value, key);
}

bool Parameters::flag(std::string_view key) const { return typed<bool>(find(values_, key), key); }

const std::string& Parameters::text(std::string_view key) const {
  return typed<std::string>(find(values_, key), key);
}

std::vector<std::int64_t> Parameters::integers(std::string_view key) const {
  return typed<std::vector<std::int64_t>>(find(values_, key), key);
}

std::vector<double> Parameters::reals(std::string_view key) const {
  const ParameterValue& value = find(values_, key);
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
    return {integers->begin(), integers->end()};
  return typed<std::vector<double>>(value, key);
}

std::vector<std::string> Parameters::texts(std::string_view key) const {
  return typed<std::vector<std::string>>(find(values_, key), key);
}

std::string Parameters::to_toml(std::string_view key) const {
  return std::visit([](const auto& value) { return toml_of(value); }, find(values_, key));
}

}  // namespace fp8lab
