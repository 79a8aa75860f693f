#include "lab/sweep/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/model_text.hpp"
#include "fp8lab/core/random.hpp"
#include "lab/experiment/model_parameters.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kMaxPoints = std::int64_t{1} << 30;  // their places in the log: 8 GiB

const ParameterValue& default_of(const Parameters& defaults, std::string_view key) {
  const auto found = defaults.values().find(key);
  if (found != defaults.values().end()) return found->second;
  std::string known;
  for (const auto& [name, value] : defaults.values()) known += (known.empty() ? "" : ", ") + name;
  throw Error("axis", fmt::format("a parameter: {}", known), fmt::format("'{}'", key));
}

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

/// The value, or the only element of a list.
std::optional<Cell> single(const ParameterValue& value) {
  return std::visit(
      [](const auto& v) -> std::optional<Cell> {
        if constexpr (kIsList<std::decay_t<decltype(v)>>)
          return v.size() == 1 ? std::optional<Cell>(v.front()) : std::nullopt;
        else
          return v;
      },
      value);
}

bool is_integer(const ParameterValue& value) {
  return std::holds_alternative<std::int64_t>(value) ||
         std::holds_alternative<std::vector<std::int64_t>>(value);
}

bool is_real(const ParameterValue& value) {
  return std::holds_alternative<double>(value) ||
         std::holds_alternative<std::vector<double>>(value);
}

/// Whether `key` is a part of the models that a parameter names.
bool is_part(std::string_view key) { return !parameter_part(key).part.empty(); }

/// Whether an item of an axis is a list of its own values.
bool is_list(std::string_view item) { return item.starts_with('['); }

/// `changed` holds the defaults but for `key`: a long axis does not copy them for each value.
AxisValue axis_value(Parameters& changed, std::string_view key, std::string_view text) {
  changed.set(fmt::format("{}={}", key, text));
  if (is_part(key)) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    return {std::string(text), whole ? Cell(value) : Cell(std::string(text))};
  }
  std::string toml = changed.to_toml(key);
  if (is_list(text)) return {toml, toml};
  std::optional<Cell> cell = single(changed.values().find(key)->second);
  if (!cell)
    throw Error(fmt::format("axis {}", key), "one value, or a list in brackets",
                fmt::format("'{}'", text));
  return {std::move(toml), *std::move(cell)};
}

/// The items between commas; those inside brackets belong to a list.
std::vector<std::string> split_items(std::string_view text) {
  std::vector<std::string> items;
  bool inside = false;
  for (std::string& part : split_model_list(text)) {
    if (inside)
      items.back() += "," + part;
    else
      items.push_back(std::move(part));
    inside = items.back().starts_with('[') && !items.back().ends_with(']');
  }
  return items;
}

std::vector<std::string> elements_of_default(const Parameters& defaults, std::string_view key) {
  std::vector<std::string> texts;
  std::visit(
      [&](const auto& value) {
        if constexpr (kIsList<std::decay_t<decltype(value)>>) {
          for (const auto& element : value) texts.push_back(fmt::format("{}", element));
        } else {
          throw Error(fmt::format("axis {}", key), "values (the default is not a list)", "all");
        }
      },
      default_of(defaults, key));
  return texts;
}

template <class T>
T number(std::string_view axis, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw Error(axis, std::is_integral_v<T> ? "integers in a range" : "numbers in a range",
                fmt::format("'{}'", text));
  return value;
}

/// FIRST:LAST[:+STEP|:*FACTOR].
template <class T>
struct Range {
  T first;
  T last;
  T by;
  bool multiplies;
};

template <class T>
Range<T> parse_range(std::string_view axis, std::string_view text) {
  const auto colon = text.find(':');
  const auto second = text.find(':', colon + 1);
  std::string_view step = second == std::string_view::npos ? "+1" : text.substr(second + 1);
  const bool multiplies = step.starts_with('*');
  if (multiplies || step.starts_with('+')) step.remove_prefix(1);
  const Range<T> range{number<T>(axis, text.substr(0, colon)),
                       number<T>(axis, text.substr(colon + 1, second - colon - 1)),
                       number<T>(axis, step), multiplies};
  const bool moves = multiplies ? range.by > T{1} && range.first > T{0} : range.by > T{0};
  if (!moves || !(range.first <= range.last) || !std::isfinite(static_cast<double>(range.last)))
    throw Error(axis, "FIRST:LAST[:+STEP|:*FACTOR], increasing from FIRST to LAST",
                fmt::format("'{}'", text));
  return range;
}

/// Value number `index`, or nothing past the end.
std::optional<std::string> value_of(const Range<std::int64_t>& range, std::size_t index,
                                    std::int64_t& value) {
  // Checked before the step is made: it must not overflow.
  if (index == 0)
    value = range.first;
  else if (range.multiplies ? value > range.last / range.by : range.by > range.last - value)
    return std::nullopt;
  else
    value = range.multiplies ? value * range.by : value + range.by;
  return fmt::format("{}", value);
}

/// To 12 significant digits: 0.1:0.8:+0.1 means 0.3 and reaches 0.8.
std::optional<std::string> value_of(const Range<double>& range, std::size_t index,
                                    double& /*value*/) {
  const auto i = static_cast<double>(index);
  const double value =
      range.multiplies ? range.first * std::pow(range.by, i) : range.first + i * range.by;
  const double slack = 1e-9 * (range.multiplies ? range.last : range.by);
  if (value > range.last + slack) return std::nullopt;
  return fmt::format("{:.12g}", value);
}

template <class T>
std::vector<std::string> range(std::string_view axis, std::string_view text, std::size_t most) {
  const Range<T> range = parse_range<T>(axis, text);
  const auto require_few = [&](bool few) {
    require(few, axis, fmt::format("at most {} values", most), fmt::format("'{}'", text));
  };
  // Far too many are refused before they are made.
  const double length = static_cast<double>(range.last) - static_cast<double>(range.first);
  require_few(range.multiplies ||
              length <= static_cast<double>(range.by) * static_cast<double>(most));
  std::vector<std::string> texts;
  T value{};
  while (const std::optional<std::string> next = value_of(range, texts.size(), value)) {
    require_few(texts.size() < most);
    texts.push_back(*next);
  }
  return texts;
}

std::vector<std::string> expand(std::string_view item, std::string_view key,
                                const Parameters& defaults, std::size_t most) {
  const std::string axis = fmt::format("axis {}", key);
  if (is_part(key)) {
    require(item != "all", axis, "values, or FIRST:LAST of integers", "all");
    if (item.find(':') != std::string_view::npos) return range<std::int64_t>(axis, item, most);
    return {std::string(item)};
  }
  const ParameterValue& like = default_of(defaults, key);
  if (is_list(item)) return {std::string(item)};
  if (item == "all") return elements_of_default(defaults, key);
  if (item.find(':') != std::string_view::npos) {
    if (is_integer(like)) return range<std::int64_t>(axis, item, most);
    if (is_real(like)) return range<double>(axis, item, most);
  }
  return {std::string(item)};
}

}  // namespace

GridAxis parse_axis(std::string_view spec, const Parameters& defaults, std::size_t most) {
  const FloatEnvironment environment;
  const auto equals = spec.find('=');
  if (equals == std::string_view::npos || equals + 1 == spec.size())
    throw Error("axis", "KEY=VALUE,VALUE...", fmt::format("'{}'", spec));
  GridAxis axis{std::string(spec.substr(0, equals)), {}};
  std::set<std::string> seen;
  Parameters changed = defaults;
  bool lists = false;
  for (const std::string& item : split_items(spec.substr(equals + 1))) {
    lists |= is_list(item);
    for (const std::string& text : expand(item, axis.key, defaults, most)) {
      if (is_part(axis.key)) changed = defaults;  // parts of a model add up
      AxisValue value = axis_value(changed, axis.key, text);
      require(seen.insert(value.toml).second, fmt::format("axis {}", axis.key), "each value once",
              fmt::format("{} twice", value.toml));
      axis.values.push_back(std::move(value));
    }
  }
  // Beside a list every value is shown as one: a column has cells of one type.
  if (lists)
    for (AxisValue& value : axis.values) value.cell = value.toml;
  return axis;
}

void Grid::validate() const {
  require(repeats > 0, "repeat", "at least 1", std::to_string(repeats));
  std::set<std::string_view> keys;
  std::int64_t points = 1;
  for (const GridAxis& axis : axes) {
    require(keys.insert(axis.key).second, "axis", "each parameter once",
            fmt::format("{} twice", axis.key));
    require(!axis.values.empty(), fmt::format("axis {}", axis.key), "at least one value", "none");
    const auto count = static_cast<std::int64_t>(axis.values.size());
    require(points <= kMaxPoints / count, "grid", fmt::format("at most {} points", kMaxPoints),
            "more");
    points *= count;
  }
  require(repeats <= kMaxPoints / points, "repeat",
          fmt::format("at most {}, for {} points in all", kMaxPoints / points, kMaxPoints),
          std::to_string(repeats));
}

std::int64_t Grid::size() const {
  std::int64_t points = repeats;
  for (const GridAxis& axis : axes) points *= static_cast<std::int64_t>(axis.values.size());
  return points;
}

GridPoint Grid::at(std::int64_t index) const {
  require(index >= 0 && index < size(), "point", fmt::format("0 to {}", size() - 1),
          std::to_string(index));
  GridPoint point{index, index % repeats, 0, base, std::vector<Cell>(axes.size())};
  std::int64_t rest = index / repeats;
  std::map<std::string_view, std::string_view> by_key;
  for (std::size_t a = axes.size(); a-- > 0;) {
    const auto count = static_cast<std::int64_t>(axes[a].values.size());
    const AxisValue& value = axes[a].values[static_cast<std::size_t>(rest % count)];
    rest /= count;
    if (!is_part(axes[a].key)) point.parameters.set(fmt::format("{}={}", axes[a].key, value.toml));
    point.coordinates[a] = value.cell;
    by_key.emplace(axes[a].key, value.toml);
  }
  // Parts of models come after the models themselves.
  for (const auto& [key, toml] : by_key)
    if (is_part(key)) point.parameters.set(fmt::format("{}={}", key, toml));
  std::string name = fmt::format("sweep {}", experiment);
  for (const auto& [key, toml] : by_key) name += fmt::format("\n{}={}", key, toml);
  point.seed = RandomStream(seed, name).bits64(static_cast<std::uint64_t>(point.repeat));
  return point;
}

}  // namespace fp8lab
