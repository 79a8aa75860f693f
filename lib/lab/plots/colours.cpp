#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "lab/plots/look.hpp"

namespace fp8lab {
namespace {

using Places = std::set<std::size_t>;

bool has_own_colour(const Series& series) { return !series.like && !series.colour; }

/// What a series is of: its label up to the first comma, if that names it among the others.
std::string thing_of(const Plot& plot, const Series& series) {
  const std::string start = series.label.substr(0, series.label.find(", "));
  const auto same = std::ranges::count_if(plot.series, [&](const Series& other) {
    return !other.like && other.label.substr(0, other.label.find(", ")) == start;
  });
  return same == 1 ? start : series.label;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number of a text that is no part of a name: its place, length and value.
struct NumberIn {
  std::size_t at = 0;
  std::size_t length = 0;
  double value = 0.0;
};

std::vector<NumberIn> numbers_in(std::string_view text) {
  std::vector<NumberIn> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || std::string_view(" =/(").find(text[i - 1]) != text.npos;
    if (!is_digit(text[i]) || !begins) continue;
    std::size_t end = i;
    while (end < text.size() &&
           (is_digit(text[end]) ||
            (text[end] == '.' && end + 1 < text.size() && is_digit(text[end + 1]))))
      ++end;
    if (end == text.size() || std::string_view(" /)%").find(text[end]) != text.npos)
      found.push_back({i, end - i, std::stod(std::string(text.substr(i, end - i)))});
    i = end;
  }
  return found;
}

/// The members of ordered quantities: thing -> its shade.
std::map<std::string, SeriesColour> shades_of(const std::set<std::string>& things) {
  std::map<std::string, std::map<double, std::set<std::string>>> families;
  for (const std::string& thing : things)
    for (const NumberIn& number : numbers_in(thing)) {
      std::string family = thing;
      family.replace(number.at, number.length, 1, '\0');
      families[family][number.value].insert(thing);
    }
  std::map<std::string, SeriesColour> shades;
  for (const auto& [family, members] : families) {
    if (members.size() < 3 || members.size() > kMostShades) continue;
    std::size_t place = 0;
    for (const auto& [value, names] : members) {
      for (const std::string& name : names)
        shades.emplace(name, SeriesColour{place, members.size()});
      ++place;
    }
  }
  return shades;
}

/// The first place of the palette that no series of this plot has; one that nothing else has, if
/// the palette has such a one.
std::size_t free_place(const Places& here, const Places& anywhere) {
  for (std::size_t place = 0; place < kPalette; ++place)
    if (!here.contains(place) && !anywhere.contains(place)) return place;
  std::size_t place = 0;
  while (here.contains(place)) ++place;
  return place;
}

void share_with_variants(Plot& plot) {
  for (Series& series : plot.series) {
    if (!series.like) continue;
    require(*series.like < plot.series.size() && !plot.series[*series.like].like,
            fmt::format("plot {}: like of series '{}'", plot.name, series.label),
            "the index of a series with a colour of its own", fmt::format("{}", *series.like));
    series.colour = plot.series[*series.like].colour;
  }
}

}  // namespace

void assign_colours(std::span<Plot> plots) {
  std::set<std::string> things;
  for (const Plot& plot : plots)
    for (const Series& series : plot.series)
      if (has_own_colour(series)) things.insert(thing_of(plot, series));
  std::map<std::string, SeriesColour> known = shades_of(things);
  Places anywhere;
  for (Plot& plot : plots) {
    std::vector<std::pair<Series*, std::string>> own;
    Places here;
    for (Series& series : plot.series) {
      if (has_own_colour(series)) own.emplace_back(&series, thing_of(plot, series));
      if (series.colour && series.colour->shades == 0) here.insert(series.colour->place);
    }
    for (auto& [series, thing] : own) {
      const auto found = known.find(thing);
      if (found == known.end()) continue;
      const bool taken = found->second.shades == 0 && !here.insert(found->second.place).second;
      if (!taken) series->colour = found->second;
    }
    for (auto& [series, thing] : own) {
      if (series->colour) continue;
      series->colour = SeriesColour{free_place(here, anywhere), 0};
      here.insert(series->colour->place);
      anywhere.insert(series->colour->place);
      known.emplace(thing, *series->colour);
    }
    share_with_variants(plot);
  }
}

std::vector<SeriesColour> colours_of(const Plot& plot) {
  Plot coloured = plot;
  assign_colours({&coloured, 1});
  std::vector<SeriesColour> colours;
  for (const Series& series : coloured.series) colours.push_back(*series.colour);
  return colours;
}

}  // namespace fp8lab
