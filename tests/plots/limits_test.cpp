// Axes, marks and notes of plots at both sides of each limit.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "lab/plots/look.hpp"
#include "lab/plots/plot_json.hpp"
#include "lab/plots/vega.hpp"
#include "plots/maps.hpp"

namespace fp8lab::test::plot_limits {
namespace {

using nlohmann::json;
using Numbers = std::vector<double>;

json limits_spec(const auto& plot) { return json::parse(plot_json(plot)); }

Plot one_curve(Numbers x, Numbers y, bool log = false) {
  return {"p", "t", {"x", log}, {"y", log}, {{"s", std::move(x), std::move(y)}}};
}

/// Least and most of what an axis shows of all curves but those that leave the plot.
std::pair<double, double> range_of(const Plot& plot, const std::vector<std::size_t>& away) {
  Numbers all;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    if (std::ranges::find(away, s) != away.end()) continue;
    const Series& series = plot.series[s];
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i])) continue;
      all.push_back(series.y[i]);
      if (series.low.empty()) continue;
      if (std::isfinite(series.low[i])) all.push_back(series.low[i]);
      if (std::isfinite(series.high[i])) all.push_back(series.high[i]);
    }
  }
  const auto [low, high] = std::ranges::minmax(all);
  return {low, high};
}

}  // namespace

TEST_CASE("a y axis that leaves a curve out reaches both ends of every band", "[plots]") {
  const RandomStream random(3, "test/bands");
  std::uint64_t at = 0;
  const auto draw = [&](double from, double to) {
    return from + (to - from) * random.uniform(at++);
  };
  for (int turn = 0; turn < 60; ++turn) {
    const double base = draw(-30.0, 60.0);
    Plot plot{"p", "t", {"x"}, {"y"}, {}};
    for (int s = 0; s < 3; ++s) {
      Series series{fmt::format("s{}", s), {}, {}};
      for (int i = 0; i < 4; ++i) {
        series.x.push_back(i);
        series.y.push_back(base + draw(1.0, 9.0));
        if (s == turn % 3) continue;  // without a band
        series.low.push_back(series.y.back() - draw(0.0, 8.0));
        series.high.push_back(series.y.back() + draw(0.0, 8.0));
        if (draw(0.0, 1.0) < 0.1) series.high.back() = std::nan("");
        if (draw(0.0, 1.0) < 0.1) series.low.back() = -std::numeric_limits<double>::infinity();
      }
      plot.series.push_back(std::move(series));
    }
    const std::size_t away = plot.series.size();
    plot.series.push_back(
        {"away", {0, 1}, {base, 1e12}, Series::Style::lines, {base, -7e12}, {0, 9e12}});
    const auto [low, high] = range_of(plot, {away});
    const double air = 0.03 * (high - low);
    const bool zero = low >= 0.0 && low < 0.4 * high;
    const json scale = limits_spec(plot)["encoding"]["y"]["scale"];
    INFO(plot_json(plot));
    REQUIRE(scale["domain"].size() == 2);
    CHECK(scale["domain"][0].get<double>() == (zero ? 0.0 : low - air));
    CHECK(scale["domain"][1].get<double>() == high + air);
    // Without the curve that leaves, the scale is the drawing library's, from zero or not.
    plot.series.pop_back();
    const json whole = limits_spec(plot)["encoding"]["y"]["scale"];
    CHECK(!whole.contains("domain"));
    CHECK(whole["zero"].get<bool>() == zero);
  }
}

TEST_CASE("a band's edges count where an axis decides what it shows", "[plots]") {
  const auto plot_of = [](const Numbers& low, const Numbers& high, bool log) {
    Plot plot = one_curve({1, 2}, {2, 3}, log);
    plot.series[0].low = low;
    plot.series[0].high = high;
    return limits_spec(plot)["encoding"]["y"];
  };
  // Whole numbers alone have no ticks between them.
  CHECK(plot_of({1, 2}, {3, 4}, false)["axis"].contains("tickMinStep"));
  CHECK(!plot_of({1, 2.5}, {3, 4}, false)["axis"].contains("tickMinStep"));
  CHECK(!plot_of({1, 2}, {3.5, 4}, false)["axis"].contains("tickMinStep"));
  // From zero on below two fifths of the largest value.
  CHECK(plot_of({1.99, 2}, {3, 5}, false)["scale"]["zero"] == true);
  CHECK(plot_of({2, 2}, {3, 5}, false)["scale"]["zero"] == false);
  CHECK(plot_of({2, 2}, {3, 5.01}, false)["scale"]["zero"] == true);
  CHECK(plot_of({-0.01, 2}, {3, 5}, false)["scale"]["zero"] == false);
  // Powers below 10^-3 or above 10^4; a log axis does not know edges at zero or below.
  const auto powers = [&](const Numbers& low, const Numbers& high) {
    const std::string text = plot_of(low, high, true)["axis"]["labelExpr"];
    return text.find("'10' + ") != std::string::npos;
  };
  CHECK(!powers({1e-3, 2}, {3, 1e4}));
  CHECK(powers({0.99e-3, 2}, {3, 4}));
  CHECK(powers({1, 2}, {3, 1.01e4}));
  CHECK(!powers({0, -5}, {3, 4}));
}

TEST_CASE("an axis begins at zero where its values come near it", "[plots]") {
  const auto zero = [](const char* axis, Numbers values) {
    const bool of_x = *axis == 'x';
    const Numbers other(values.size(), 0.5);
    return limits_spec(one_curve(of_x ? values : other,
                                 of_x ? other : values))["encoding"][axis]["scale"]["zero"]
        .get<bool>();
  };
  CHECK_FALSE(zero("y", {40, 100}));
  CHECK(zero("y", {39.9, 100}));
  CHECK_FALSE(zero("x", {10, 100}));
  CHECK(zero("x", {9.9, 100}));
  for (const char* axis : {"x", "y"}) {
    CHECK(zero(axis, {0, 100}));
    CHECK_FALSE(zero(axis, {-0.1, 100}));
    CHECK_FALSE(zero(axis, {0, 0}));
  }
}

TEST_CASE("a curve leaves the plot above ten thousand times all others", "[plots]") {
  for (const auto& [other, most, away] : {std::tuple{1.0, 1e4, false},
                                          {1.0, 1.0001e4, true},
                                          {-2.0, 2e4, false},
                                          {-2.0, -2.0002e4, true},
                                          {0.0, 1e30, false}}) {
    Plot plot = one_curve({1, 2}, {0.0, most});
    plot.series.push_back({"r", {1, 2}, {0.0, other}});
    CAPTURE(other, most);
    CHECK(runaways(plot) == (away ? std::vector<std::size_t>{0} : std::vector<std::size_t>{}));
    // The one curve of a plot stays.
    plot.series.pop_back();
    CHECK(runaways(plot).empty());
  }
  // One above the other, the largest first.
  Plot plot = one_curve({1}, {1e9});
  plot.series.push_back({"r", {1}, {1e4 + 1}});
  plot.series.push_back({"q", {1}, {1e14}});
  plot.series.push_back({"o", {1}, {1.0}});
  CHECK(runaways(plot) == std::vector<std::size_t>{2, 0, 1});
}

TEST_CASE("notes count what is left out, one and several", "[plots]") {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  const auto note = [](Numbers x, Numbers y, bool log) {
    return note_of(one_curve(std::move(x), std::move(y), log));
  };
  CHECK(note({1, 2}, {1, 2}, true).empty());
  CHECK(note({1, 2}, {0, 2}, true) == "1 value ≤ 0 left out (log axis)");
  CHECK(note({0, 2, -1}, {-1, 2, 3}, true) == "3 values ≤ 0 left out (log axis)");
  CHECK(note({1, 2}, {-1, 2}, false).empty());
  CHECK(note({1, 2}, {-kFar, 2}, true) == "1 infinite value left out");
  CHECK(note({1, kFar, 3}, {-kFar, 2, 3}, false) == "2 infinite values left out");
  CHECK(note({1}, {-kFar}, false) ==
        "1 infinite value left out; nothing to show for: s; no value to show");
  Plot plot = one_curve({1}, {-1}, true);
  plot.series.push_back({"r", {-1}, {1}});
  plot.series.push_back({"", {1}, {0}});
  plot.series.push_back({"shown", {1}, {1}});
  CHECK(note_of(plot) == "3 values ≤ 0 left out (log axis); nothing to show for: s, r");
}

TEST_CASE("a long curve has marks at some of its points, bands are paler the more there are",
          "[plots]") {
  for (const auto& [points, every] :
       {std::pair<std::size_t, std::size_t>{39, 1}, {40, 2}, {79, 2}, {80, 3}, {121, 4}}) {
    Plot plot = one_curve(Numbers(points, 1.0), Numbers(points, 1.0));
    plot.series.push_back({"all", Numbers(200, 1.0), Numbers(200, 1.0), Series::Style::points});
    plot.series.push_back({"few", {1, 2}, {1, 2}});
    const json layers = limits_spec(plot)["layer"];
    const auto marks = std::ranges::find_if(
        layers, [](const json& layer) { return layer["mark"].value("filled", false); });
    REQUIRE(marks != layers.end());
    CAPTURE(points);
    const std::string expected =
        fmt::format("(datum.point - 1) % [{}, 1, 1][datum.series] == 0", every);
    CHECK(((*marks)["transform"].dump().find(expected) != std::string::npos) == (every > 1));
    CHECK((*marks)["transform"].size() == (every > 1 ? 2 : 0));
  }
  for (const auto& [bands, opacity] :
       {std::pair{1, 0.18}, {3, 0.18}, {4, 0.54 / 4}, {6, 0.54 / 6}}) {
    Plot plot{"p", "t", {"x"}, {"y"}, {{"plain", {1, 2}, {1, 2}}}};
    for (int i = 0; i < bands; ++i)
      plot.series.push_back({"b", {1, 2}, {1, 2}, Series::Style::lines, {0, 1}, {2, 3}});
    CAPTURE(bands);
    CHECK(limits_spec(plot)["layer"][0]["mark"]["opacity"].get<double>() == opacity);
  }
}

TEST_CASE("curves are told apart by colours, then dashes, and marks where they have some",
          "[plots]") {
  const json colours{"#0072B2", "#C44E00", "#009E73", "#A05195", "#E69F00", "#56B4E9", "#000000"};
  const json marks{"circle",        "square", "triangle-up",   "diamond",
                   "triangle-down", "cross",  "triangle-right"};
  for (const auto style : {Series::Style::lines, Series::Style::lines_points, Series::Style::steps,
                           Series::Style::points, Series::Style::dashed}) {
    Plot plot{"p", "t", {"x"}, {"y"}, {}};
    for (int i = 0; i < 16; ++i)
      plot.series.push_back({fmt::format("s{}", i), {1, 2}, {1, 2}, style});
    const bool marked = style == Series::Style::lines_points || style == Series::Style::points;
    const bool dashed = style == Series::Style::dashed;
    CAPTURE(static_cast<int>(style));
    json spec = limits_spec(plot);
    for (const json& layer : spec["layer"]) {
      if (layer.value("name", "") == "pointer") continue;
      const json& encoding = layer["encoding"];
      const json& range = encoding["color"]["scale"]["range"];
      for (std::size_t i = 0; i < 16; ++i) {
        CHECK(range[i] == colours[i % 7]);
        if (encoding.contains("strokeDash"))
          CHECK(encoding["strokeDash"]["scale"]["range"][i] == (marked   ? json{1, 0}
                                                                : dashed ? json{8, 5}
                                                                : i >= 7 ? json{2, 3}
                                                                         : json{1, 0}));
        if (encoding.contains("shape"))
          CHECK(encoding["shape"]["scale"]["range"][i] == marks[(i + 3 * (i / 7)) % 7]);
      }
      // A legend without any mark has strokes; nobody asks for a legend without a name.
      CHECK(encoding["color"]["legend"] ==
            (marked ? json{{"title", nullptr}}
                    : json{{"title", nullptr}, {"symbolType", "M-2,0L2,0"}}));
    }
    for (Series& series : plot.series) series.label.clear();
    spec = limits_spec(plot);
    CHECK(spec["layer"][0]["encoding"]["color"]["legend"].is_null());
    CHECK(!spec["layer"][0].contains("params"));
    CHECK(spec["transform"].dump().find("shown") == std::string::npos);
  }
}

TEST_CASE("large cells lose their colour beyond a fifth of them and a seventh of the scale",
          "[plots]") {
  // `small` cells from 1 to 2 in equal steps, then `large` ones at `far`.
  const auto beyond = [](std::size_t small, std::size_t large, double far, bool log) {
    Numbers values;
    for (std::size_t i = 0; i < small; ++i)
      values.push_back(1.0 + static_cast<double>(i) / static_cast<double>(small - 1));
    values.insert(values.end(), large, far);
    if (log)
      for (double& v : values) v = std::exp(v);
    return colour_range(map_of(values, log)).beyond;
  };
  for (const bool log : {false, true}) {
    CAPTURE(log);
    CHECK(beyond(20, 5, 100.0, log) == 5);
    CHECK(beyond(20, 6, 100.0, log) == 0);  // their fifth begins among the large ones
    // Small cells have 0.15 of the scale at 1 + 1 / 0.15.
    CHECK(beyond(20, 2, 1.0 + 1.01 / 0.15, log) == 2);
    CHECK(beyond(20, 2, 1.0 + 0.99 / 0.15, log) == 0);
  }
  // A cell is one of the small ones up to twice their span.
  Numbers values;
  for (int i = 0; i <= 10; ++i) values.push_back(0.1 * i);
  for (const auto& [next, high] : {std::pair{2.0, 2.0}, {2.001, 1.0}}) {
    Numbers all = values;
    all.push_back(next);
    all.push_back(100.0);
    CAPTURE(next);
    CHECK(colour_range(map_of(all)).high == high);
    CHECK(colour_range(map_of(all)).beyond == (high == 1.0 ? 2 : 1));
  }
}

TEST_CASE("ticks are powers where numbers would be long, per unit of a second scale", "[plots]") {
  for (const int base : {2, 10}) {
    const Axis axis{"x", true, base};
    const double least = base == 2 ? 0x1p-4 : 1e-3;
    const double most = base == 2 ? 0x1p17 : 1e4;
    CAPTURE(base);
    CHECK_FALSE(labels_are_powers(axis, least, most));
    CHECK_FALSE(labels_are_powers(axis, 0.9991 * least, 1.0009 * most));
    CHECK(labels_are_powers(axis, 0.998 * least, most));
    CHECK(labels_are_powers(axis, least, 1.002 * most));
    CHECK_FALSE(labels_are_powers({"x", false, base}, least / 10.0, most * 10.0));
    const auto powers = [&](double low, double high, double unit) {
      return log_labels(axis, low, high, unit).find("round(log(") != std::string::npos;
    };
    CHECK_FALSE(powers(8.0 * least, 8.0 * most, 8.0));
    CHECK(powers(7.9 * least, 8.0 * most, 8.0));
    CHECK(powers(8.0 * least, 8.1 * most, 8.0));
  }
}

}  // namespace fp8lab::test::plot_limits
