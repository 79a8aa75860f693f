#include "lab/plots/look.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/plots/plot_json.hpp"
#include "lab/plots/text.hpp"
#include "plots/maps.hpp"

using namespace fp8lab;
using fp8lab::test::map_of;

namespace {

using Indices = std::vector<std::size_t>;

/// Two things, each in two variants, the variants dashed.
Plot variants() {
  Plot plot{"p", "t", {"x"}, {"y"}, {}};
  for (const char* label : {"a", "b", "a dashed", "b dashed"})
    plot.series.push_back({label, {1, 2}, {0.1, 0.2}});
  for (const std::size_t i : {2U, 3U}) {
    plot.series[i].style = Series::Style::dashed;
    plot.series[i].like = i - 2;
  }
  plot.series.push_back({"c", {1, 2}, {0.3, 0.4}});
  return plot;
}

Indices places_of(const Plot& plot) {
  Indices places;
  for (const SeriesColour& colour : colours_of(plot)) {
    CHECK(colour.shades == 0);
    places.push_back(colour.place);
  }
  return places;
}

Plot labelled(const std::vector<std::string>& labels) {
  Plot plot{"p", "t", {"x"}, {"y"}, {}};
  for (const std::string& label : labels) plot.series.push_back({label, {1, 2}, {1, 2}});
  return plot;
}

}  // namespace

TEST_CASE("a thing has one colour in all plots that stand together", "[plots]") {
  std::vector<Plot> plots{labelled({"a", "b, K^2"}), labelled({"c", "b, K^3", "a"}),
                          labelled({"d, one", "d, two"})};
  plots[1].series.push_back({"b dashed", {1}, {1}, Series::Style::dashed, {}, {}, 1});
  assign_colours(plots);
  const auto place = [&](std::size_t p, std::size_t s) { return plots[p].series[s].colour->place; };
  CHECK((place(0, 0) == 0 && place(0, 1) == 1));
  CHECK((place(1, 0) == 2 && place(1, 1) == 1 && place(1, 2) == 0 && place(1, 3) == 1));
  // Both begin with the same words, so that their whole labels tell what they are.
  CHECK((place(2, 0) == 3 && place(2, 1) == 4));
  // A palette that is used up begins again, but not within a plot.
  std::vector<Plot> many{labelled({"0", "1", "2", "3", "4", "5", "6", "7"}), labelled({"8", "9"})};
  for (Plot& plot : many)
    for (Series& series : plot.series) series.label.insert(0, "s");
  assign_colours(many);
  CHECK(many[0].series[7].colour->place == 7);
  CHECK((many[1].series[0].colour->place == 0 && many[1].series[1].colour->place == 1));
}

TEST_CASE("an ordered quantity has shades from dark to light in every plot", "[plots]") {
  using C = SeriesColour;
  std::vector<Plot> plots{
      labelled({"one scale", "per tile of 128", "per tile of 16", "per tile of 64"}),
      labelled({"per tile of 64", "per tile of 16", "sm80.mma", "sm89.mma", "sm90.mma"})};
  assign_colours(plots);
  CHECK(plots[0].series[0].colour == C{0, 0});
  CHECK(plots[0].series[1].colour == C{2, 3});
  CHECK(plots[0].series[2].colour == C{0, 3});
  CHECK(plots[0].series[3].colour == C{1, 3});
  CHECK(plots[1].series[0].colour == C{1, 3});
  CHECK(plots[1].series[1].colour == C{0, 3});
  // Digits of names are no quantities.
  for (std::size_t i = 2; i < 5; ++i) CHECK(plots[1].series[i].colour->shades == 0);
  const auto colour_of = [](const Plot& plot, std::size_t series) {
    const auto spec = nlohmann::json::parse(plot_json(plot));
    return spec["layer"][0]["encoding"]["color"]["scale"]["range"][series].get<std::string>();
  };
  CHECK(colour_of(plots[0], 2) == colour_of(plots[1], 1));
  CHECK(colour_of(plots[0], 2) == "#0B1F78");
  CHECK(colour_of(plots[0], 1) == "#B79825");
  // Two are no order, and eight are too many shades.
  CHECK(colours_of(labelled({"tile 1", "tile 2"}))[0].shades == 0);
  CHECK(colours_of(labelled({"t 1", "t 2", "t 3", "t 4", "t 5", "t 6", "t 7"}))[6] == C{6, 7});
  CHECK(colours_of(labelled({"t 1", "t 2", "t 3", "t 4", "t 5", "t 6", "t 7", "t 8"}))[7] ==
        C{7, 0});
}

TEST_CASE("a variant of one point has another mark than what it varies", "[plots]") {
  Plot plot = labelled({"a", "a dashed"});
  plot.series[1] = {"a dashed", {1}, {2}, Series::Style::dashed, {}, {}, 0};
  const auto spec = nlohmann::json::parse(plot_json(plot));
  const auto& looks = spec["layer"][1]["encoding"];
  CHECK(looks["color"]["scale"]["range"][0] == looks["color"]["scale"]["range"][1]);
  CHECK(looks["shape"]["scale"]["range"][0] != looks["shape"]["scale"]["range"][1]);
}

TEST_CASE("marks have no dashes, and other shapes where colours come again", "[plots]") {
  const Plot plot = labelled({"a", "b", "c", "d", "e", "f", "g", "h"});
  const auto spec = nlohmann::json::parse(plot_json(plot));
  const auto& looks = spec["layer"][1]["encoding"];
  CHECK(spec["layer"][0]["encoding"]["strokeDash"]["scale"]["range"][7] == nlohmann::json{1, 0});
  CHECK(looks["color"]["scale"]["range"][7] == looks["color"]["scale"]["range"][0]);
  CHECK(looks["shape"]["scale"]["range"][7] != looks["shape"]["scale"]["range"][0]);
}

TEST_CASE("a variant has the colour of what it varies, others the next one", "[plots]") {
  Plot plot = variants();
  CHECK(places_of(plot) == Indices{0, 1, 0, 1, 2});
  const auto looks = nlohmann::json::parse(plot_json(plot))["layer"][0]["encoding"];
  const auto colours = looks["color"]["scale"]["range"];
  CHECK((colours[2] == colours[0] && colours[3] == colours[1] && colours[0] != colours[1]));
  CHECK((colours[4] != colours[0] && colours[4] != colours[1]));
  CHECK(looks["color"]["scale"]["domain"] == nlohmann::json{"a", "b", "a dashed", "b dashed", "c"});
  const auto dashes = looks["strokeDash"]["scale"]["range"];
  CHECK((dashes[0] == nlohmann::json{1, 0} && dashes[2] == nlohmann::json{8, 5}));
  plot.series[3].like = 2;  // which has no colour of its own
  CHECK_THROWS_WITH(places_of(plot), contains("like of series 'b dashed'") && contains("got 2"));
  plot.series[3].like = 9;
  CHECK_THROWS_WITH(plot_json(plot), contains("got 9"));
}

TEST_CASE("the first curve lies above the others, dashed ones above all", "[plots]") {
  CHECK(drawing_order(variants()) == Indices{4, 1, 0, 3, 2});
  std::vector<std::size_t> written;
  const auto spec = nlohmann::json::parse(plot_json(variants()));
  for (const auto& series : spec["data"]["values"]) written.push_back(series["series"]);
  CHECK(written == drawing_order(variants()));
}

TEST_CASE("a few large cells do not take the colours of all others", "[plots]") {
  // 56 cells like the errors of recipes: most between 2.4 and 2.8, a few near 100.
  std::vector<double> values;
  for (int i = 0; i < 48; ++i) values.push_back(2.4 + 0.4 * i / 47.0);
  for (int i = 0; i < 8; ++i) values.push_back(60.0 + 5.0 * i);
  const ColourRange range = colour_range(map_of(values, true));
  CHECK(range.low == 2.4);
  CHECK((range.high >= 2.7 && range.high < 3.0));
  CHECK(range.beyond == 8);

  // As many large values as small ones: a difference that the colours have to show.
  for (int i = 0; i < 40; ++i) values.push_back(80.0);
  CHECK(colour_range(map_of(values, true)).beyond == 0);
  CHECK(colour_range(map_of(values, true)).high >= 95.0);
  // All equal but one: there is nothing else to show.
  std::vector<double> equal(30, 1.0);
  equal.push_back(100.0);
  CHECK(colour_range(map_of(equal)).beyond == 0);
  // Few cells are readable as they are.
  CHECK(colour_range(map_of({1.0, 1.1, 1.2, 1.3, 1.4, 100.0})).beyond == 0);
}

TEST_CASE("a map of one value has room around it, one without values has a scale", "[plots]") {
  const auto ends = [](std::vector<double> values, bool log) {
    const ColourRange range = colour_range(map_of(std::move(values), log));
    CHECK(range.beyond == 0);
    return std::pair(range.low, range.high);
  };
  CHECK(ends({3.0, 3.0}, false) == std::pair(2.5, 3.5));
  CHECK(ends({0.0}, false) == std::pair(-0.5, 0.5));
  CHECK(ends({-20.0}, false) == std::pair(-22.0, -18.0));
  CHECK(ends({8.0}, true) == std::pair(4.0, 16.0));
  CHECK(ends({1.0, 2.0}, false) == std::pair(1.0, 2.0));
  CHECK(ends({1.0, 2.0}, true) == std::pair(1.0, 2.0));
  CHECK(ends({}, false) == std::pair(0.0, 1.0));
  CHECK(ends({}, true) == std::pair(1.0, 10.0));
}

TEST_CASE("colours end before large cells in maps of more than ten cells", "[plots]") {
  std::vector<double> values{1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 100.0};
  CHECK(colour_range(map_of(values)).beyond == 0);
  CHECK(colour_range(map_of(values)).high == 100.0);
  CHECK(note_of(map_of(values)).empty());
  values.push_back(1.9);
  CHECK(colour_range(map_of(values)).beyond == 1);
  CHECK(colour_range(map_of(values)).high == 1.9);
  CHECK(note_of(map_of(values)) == "colours end at 1.9: 1 larger cell has the last one");
  values.insert(values.end(), {90.0, std::nan(""), std::numeric_limits<double>::infinity()});
  CHECK(note_of(map_of(values)) ==
        "grey: 1 cell infinite; colours end at 1.9: 2 larger cells have the last one");
}

TEST_CASE("cells that have no colour do not change those of others", "[plots]") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const bool log : {false, true})
    for (const std::size_t count : {2U, 7U, 60U}) {
      std::vector<double> values;
      for (std::size_t i = 0; i < count; ++i) values.push_back(0.5 + 0.1 * static_cast<double>(i));
      for (std::size_t i = 0; i < count / 8; ++i) values.push_back(1e3);
      const ColourRange alone = colour_range(map_of(values, log));
      std::vector<double> hidden{std::nan(""), kInf, -kInf};
      if (log) hidden.insert(hidden.end(), {0.0, -0.0, -1.0, -1e9});
      values.insert(values.begin() + 1, hidden.begin(), hidden.end());
      const ColourRange range = colour_range(map_of(values, log));
      INFO(count << " cells, log " << log);
      CHECK(range.low == alone.low);
      CHECK(range.high == alone.high);
      CHECK(range.beyond == alone.beyond);
    }
  CHECK(colour_range(map_of({0.0, -1.0}, true)).low == 1.0);
}

TEST_CASE("cells print no digits that are noise beside the largest one", "[plots]") {
  using Texts = std::vector<std::string>;
  CHECK(cell_texts(map_of({4.0, -1.12e-06, 0.00507, 0.4321, std::nan("")})) ==
        Texts{"4", "0", "0.005", "0.432", ""});
  CHECK(cell_texts(map_of({-4.3e-10, -4.1, std::numeric_limits<double>::infinity()})) ==
        Texts{"0", "-4.1", "inf"});
  CHECK(cell_texts(map_of({1e-6, 100.0}, true)) == Texts{"1e-06", "100"});  // a log map has room
  CHECK(cell_texts(map_of({0.0, 0.0})) == Texts{"0", "0"});
}

TEST_CASE("powers and the mark of a transpose are raised, other carets stay", "[plots]") {
  CHECK(typeset("N(0, 0.4^2)") == "N(0, 0.4²)");
  CHECK(typeset("K^-1.50, 10^6.") == "K⁻¹·⁵⁰, 10⁶.");
  CHECK(typeset("x w^T, dy^T x") == "x wᵀ, dyᵀ x");
  CHECK(typeset("a^Tensor b^c ^") == "a^Tensor b^c ^");
}
