#include "apps/bench/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/printable.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

/// The speed of a row in units of a ceiling.
struct Figure {
  std::string_view key;
  bool is_time;  ///< less is faster
};
constexpr std::array<Figure, 3> kFigures{
    {{"ratio_to_fma", false}, {"ratio", false}, {"ratio_to_fp32", true}}};

/// What tells one row from another. The method is not among them: a build may find a better one.
constexpr std::array<std::string_view, 7> kIdentity{"name",  "recipe", "products",          "model",
                                                    "shape", "data",   "promotion_interval"};

/// Of a row by benchmark and name.
using Place = std::pair<std::string, std::string>;
using Speeds = std::map<Place, double>;

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::string identity(const json& row) {
  std::string words;
  for (const std::string_view key : kIdentity) {
    if (!row.contains(key) || row[key] == 0) continue;
    const bool named = row[key].is_string();
    words += fmt::format("{}{}{}", words.empty() ? "" : " ", named ? "" : "promotion ",
                         text_of(row[key]));
  }
  return words;
}

const Figure* figure_of(const json& row) {
  for (const Figure& figure : kFigures)
    if (row.contains(figure.key) && row[figure.key].is_number()) return &figure;
  return nullptr;
}

void add_row(const std::string& benchmark, const json& row, Speeds& speeds) {
  const Figure* figure = figure_of(row);
  if (figure == nullptr) return;
  const double value = row[figure->key].get<double>();
  const std::string name = identity(row);
  Place place{benchmark, name};
  for (int again = 2; speeds.contains(place); ++again)
    place.second = fmt::format("{} ({})", name, again);
  speeds[place] = figure->is_time ? 1.0 / value : value;
}

Speeds speeds_of(const BenchReport& report) {
  Speeds speeds;
  for (const auto& [benchmark, result] : report.json.items()) {
    if (!result.is_object()) continue;
    require(result.value("verified", true), report.name, fmt::format("right bits of {}", benchmark),
            "wrong ones, whose speed means nothing");
    for (const auto& [list, rows] : result.items())
      if (rows.is_array() && !rows.empty() && rows.front().is_object())
        for (const json& row : rows) add_row(benchmark, row, speeds);
  }
  require(!speeds.empty(), report.name, "what `fp8lab bench ... --json` prints",
          "no row with a ratio");
  return speeds;
}

/// What must be equal for speeds to be comparable: settings, sizes, threads, instruction set.
std::map<std::string, std::string> settings_of(const json& report) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, result] : report.items()) {
    if (!result.is_object()) continue;
    for (const auto& [key, value] : result.items())
      if (key != "repetitions" && (value.is_string() || value.is_number_integer()))
        settings[fmt::format("{}.{}", name, key)] = text_of(value);
  }
  return settings;
}

void require_same_settings(const BenchReport& report, const BenchReport& first) {
  const auto expected = settings_of(first.json);
  const auto got = settings_of(report.json);
  const auto value_of = [](const auto& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? "none" : found->second;
  };
  for (const auto& side : {expected, got})
    for (const auto& [key, value] : side)
      require(value_of(expected, key) == value_of(got, key),
              fmt::format("{}: {}", report.name, key),
              fmt::format("{}, as in {}", value_of(expected, key), first.name), value_of(got, key));
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t last = values.size() - 1;
  return 0.5 * (values[last / 2] + values[(last + 1) / 2]);
}

/// Values that may be dropped at each end of sorted ones, so that the rest still holds the median
/// of their distribution with 95 %, and the chance that it lies beyond one end.
struct Tail {
  std::size_t dropped = 0;
  double chance = 0.0;
};

/// The tail of `count` throws of a fair coin.
Tail tail_of(std::size_t count) {
  double next = std::ldexp(1.0, -static_cast<int>(count));
  Tail tail{0, next};
  for (std::size_t drop = 1; drop < count; ++drop) {
    next *= static_cast<double>(count - drop + 1) / static_cast<double>(drop);
    if (tail.chance + next > 0.025) break;
    tail = {drop, tail.chance + next};
  }
  return tail;
}

/// The speeds of a row, a pair at each place.
struct Pairs {
  std::vector<double> before;
  std::vector<double> after;
};

std::string_view verdict_of(double quotient, double low, double high, double limit) {
  if (high < 1.0 && quotient < 1.0 - limit) return "slower";
  return low > 1.0 ? "faster" : "same";
}

json row_of(const Place& place, const Pairs& pairs, double limit) {
  const std::size_t count = pairs.before.size();
  std::vector<double> quotients(count);
  for (std::size_t i = 0; i < count; ++i) quotients[i] = pairs.after[i] / pairs.before[i];
  std::ranges::sort(quotients);
  const std::size_t dropped = tail_of(count).dropped;
  const double quotient = median_of(quotients);
  const double low = quotients[dropped];
  const double high = quotients[count - 1 - dropped];
  return {{"benchmark", place.first},
          {"row", place.second},
          {"before", median_of(pairs.before)},
          {"after", median_of(pairs.after)},
          {"quotient", quotient},
          {"low", low},
          {"high", high},
          {"verdict", count < kFewestPairs ? "unknown" : verdict_of(quotient, low, high, limit)}};
}

json comparison_of(const std::map<Place, Pairs>& compared,
                   const std::map<Place, std::string>& one_side, std::size_t pairs, double limit) {
  json rows = json::array();
  json alone = json::array();
  std::int64_t slower = 0;
  double by_chance = 0.0;
  for (const auto& [place, row] : compared) {
    rows.push_back(row_of(place, row, limit));
    slower += rows.back()["verdict"] == "slower" ? 1 : 0;
    by_chance += tail_of(row.before.size()).chance;
  }
  for (const auto& [place, file] : one_side)
    alone.push_back({{"benchmark", place.first}, {"row", place.second}, {"file", file}});
  return {{"rows", rows},   {"one_side", alone}, {"pairs", pairs},
          {"limit", limit}, {"slower", slower},  {"by_chance", by_chance}};
}

std::string name_of(const json& row) {
  return printable(
      fmt::format("{}: {}", row["benchmark"].get<std::string>(), row["row"].get<std::string>()));
}

}  // namespace

json compare_benchmarks(const std::vector<BenchReport>& reports, double limit) {
  require(!reports.empty() && reports.size() % 2 == 0, "reports",
          "pairs of a file before and a file after", counted(reports.size(), "file"));
  std::map<Place, Pairs> compared;
  std::map<Place, std::string> one_side;
  for (std::size_t i = 0; i < reports.size(); i += 2) {
    for (const std::size_t at : {i, i + 1}) require_same_settings(reports[at], reports[0]);
    const Speeds before = speeds_of(reports[i]);
    const Speeds after = speeds_of(reports[i + 1]);
    for (const auto& [place, speed] : before)
      if (after.contains(place)) {
        compared[place].before.push_back(speed);
        compared[place].after.push_back(after.at(place));
      } else {
        one_side[place] = reports[i].name;
      }
    for (const auto& [place, speed] : after)
      if (!before.contains(place)) one_side[place] = reports[i + 1].name;
  }
  return comparison_of(compared, one_side, reports.size() / 2, limit);
}

std::string comparison_text(const json& comparison) {
  std::string text;
  std::map<std::string, std::int64_t> count;
  for (const json& row : comparison["rows"]) {
    const std::string verdict = row["verdict"].get<std::string>();
    if (++count[verdict]; verdict == "same") continue;
    text += fmt::format("{:<6} {:>6.3f} [{:.3f}, {:.3f}]  {:.3f} -> {:.3f}  {}\n", verdict,
                        row["quotient"].get<double>(), row["low"].get<double>(),
                        row["high"].get<double>(), row["before"].get<double>(),
                        row["after"].get<double>(), name_of(row));
  }
  for (const json& row : comparison["one_side"])
    text +=
        fmt::format("only in {}  {}\n", printable(row["file"].get<std::string>()), name_of(row));
  const std::string sizes = fmt::format("{}, {}", counted(comparison["rows"].size(), "row"),
                                        counted(comparison["pairs"].get<std::size_t>(), "pair"));
  if (count["unknown"] > 0)
    return text +
           fmt::format("{}: from {} pairs on, a change can be told from the machine's noise\n",
                       sizes, kFewestPairs);
  return text + fmt::format(
                    "{}: {} slower by more than {:.3g} %, {} faster, {} the same within the noise; "
                    "of equal builds, {:.2g} would seem slower by chance\n",
                    sizes, count["slower"], comparison["limit"].get<double>() * 100.0,
                    count["faster"], count["same"], comparison["by_chance"].get<double>());
}

}  // namespace fp8lab::cli
