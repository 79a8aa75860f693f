#include "lab/plots/plot_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "plots/maps.hpp"

using namespace fp8lab;
using fp8lab::test::map_of;

namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

json spec_of(const auto& plot) { return json::parse(plot_json(plot)); }

std::string subtitle(const json& spec) {
  std::string text;
  for (const auto& line : spec["title"].value("subtitle", json::array())) {
    if (!text.empty()) text += ' ';
    text += line.get<std::string>();
  }
  return text;
}

json scale(const json& spec, const char* axis) { return spec["encoding"][axis]["scale"]; }

std::string label_expression(const Axis& axis, double low, double high) {
  const Plot plot{"p", "t", axis, {"y"}, {{"s", {low, high}, {1, 2}}}};
  return spec_of(plot)["encoding"]["x"]["axis"].value("labelExpr", "");
}

}  // namespace

TEST_CASE("a plot's specification has every value, in drawing order", "[experiment]") {
  Plot plot{"p", "title <i>", {"x", true, 2}, {"y"}, {{"s", {1, 2}, {0.1, kInfinity}}}};
  plot.series.push_back({"r", {3}, {kNan}, Series::Style::lines});
  json spec = spec_of(plot);
  CHECK(spec["data"]["values"] == json::parse(R"([{"series": 1, "x": [3.0], "y": [null]},
                                                  {"series": 0, "x": [1.0, 2.0], "y": [0.1, null]}])"));
  CHECK(spec["usermeta"] ==
        json::parse(R"({"kind": "plot", "labels": ["s", "r"], "x": "x", "y": "y"})"));
  CHECK(spec["title"]["text"] == json{"title <i>"});
  CHECK((scale(spec, "x")["type"] == "log" && scale(spec, "x")["base"] == 2));
  CHECK(scale(spec, "y")["type"] == "linear");
  CHECK(spec["params"] ==
        json::parse(R"([{"name": "log_x", "value": true}, {"name": "log_y", "value": false}])"));
  plot.series[0].low = {0.05, 1.0};
  plot.series[0].high = {0.2, 2.0};
  spec = spec_of(plot);
  CHECK(spec["data"]["values"][1]["low"] == json{0.05, 1.0});
  CHECK(spec["data"]["values"][1]["high"] == json{0.2, 2.0});
  CHECK(spec["data"]["values"][0]["low"] == json::array());
  CHECK(spec["layer"][0]["mark"]["type"] == "area");
}

TEST_CASE("plots leave out what an axis cannot show, and count it", "[experiment]") {
  const Plot plot{
      "p",
      "title",
      {"x"},
      {"y", true},
      {{"kept", {1, 2, 3, 4, 5}, {0.5, 0.0, kNan, kInfinity, 2.0}}, {"gone", {1}, {-1}}}};
  CHECK(subtitle(spec_of(plot)) ==
        "2 values ≤ 0 left out (log axis); 1 infinite value left out; nothing to show for: gone");
  CHECK(subtitle(spec_of(Plot{"p", "t", {"x"}, {"y"}, {}})) == "no value to show");
}

TEST_CASE("edges of a band at zero lie on the lower end of a log axis", "[plots]") {
  Plot plot{"p", "t", {"x"}, {"y", true}, {{"s", {1, 2, 3}, {0.0, 0.2, 0.5}}}};
  plot.series[0].low = {0.0, 0.0, 0.25};
  plot.series[0].high = {0.0, 0.5, 1.0};
  const json spec = spec_of(plot);
  std::vector<std::string> edges;
  for (const json& step : spec["transform"])
    if (step.value("as", "") == "low" || step.value("as", "") == "high")
      edges.push_back(step["calculate"]);
  REQUIRE(edges.size() == 2);
  CHECK_THAT(edges[0], contains("log_y ? max(datum.low, 0.2) : datum.low"));
  CHECK_THAT(edges[1], contains("log_y ? max(datum.high, 0.2) : datum.high"));
  CHECK(subtitle(spec) == "1 value ≤ 0 left out (log axis)");
}

TEST_CASE("a line of one point has a mark", "[plots]") {
  const Plot plot{"p",
                  "title",
                  {"x"},
                  {"y"},
                  {{"long", {1, 2}, {1, 2}, Series::Style::lines},
                   {"dashed", {1}, {3}, Series::Style::dashed},
                   {"lone", {2}, {4}, Series::Style::lines}}};
  const json spec = spec_of(plot);
  const json& marks = spec["layer"][1];
  CHECK(marks["mark"]["type"] == "point");
  CHECK(marks["transform"][0]["filter"] == "indexof([1, 2], datum.series) >= 0");
  CHECK(marks["encoding"]["shape"]["scale"]["range"] == json{"M-2,0L2,0", "square", "triangle-up"});
}

TEST_CASE("a legend has as many columns as its widest label leaves room for", "[plots]") {
  const auto columns = [](std::size_t letters) {
    const Plot plot{"p", "t", {"x"}, {"y"}, {{std::string(letters, 'n'), {1, 2}, {1, 2}}}};
    return spec_of(plot)["config"]["legend"]["columns"].get<double>();
  };
  // Columns of 33 letters are 255 pixels wide with their symbols; the legend has some 740.
  CHECK(columns(33) == 2);
  CHECK(columns(28) == 3);
  CHECK(columns(20) == 4);
  CHECK(columns(200) == 1);
}

TEST_CASE("a title that needs two lines breaks before its parentheses", "[plots]") {
  const auto lines = [](const std::string& title) {
    return spec_of(Plot{"p", title, {"x"}, {"y"}, {}})["title"]["text"];
  };
  const std::string what = "Loss with optimizer states without scales, above bf16";
  const std::string setup = "(53440 parameters, 64 tokens per step, 80 steps, 4 seeds)";
  CHECK(lines(what + " " + setup) == json{what, setup});
  CHECK(lines("Loss (4 seeds)") == json{"Loss (4 seeds)"});
  CHECK(lines(std::string(60, 'a') + " " + std::string(60, 'b')) ==
        json{std::string(60, 'a'), std::string(60, 'b')});
}

TEST_CASE("a curve that runs away leaves the picture to the others", "[experiment]") {
  Plot plot{"p",
            "title",
            {"x"},
            {"loss"},
            {{"stays", {1, 2}, {0.5, 4.0}},
             {"diverges", {1, 2}, {4.0, 5e7}, Series::Style::lines, {4.0, 4e7}, {4.0, 6e7}},
             {"explodes", {1, 2}, {4.0, 1e30}}}};
  json spec = spec_of(plot);
  CHECK(subtitle(spec) == "explodes leaves the plot, to 1e+30; diverges leaves the plot, to 5e+07");
  const double top = scale(spec, "y")["domain"][1];
  CHECK((top >= 4.0 && top < 10.0));
  CHECK(scale(spec, "y")["domain"][0] == 0.0);
  plot.y.log = true;  // which has room for all
  spec = spec_of(plot);
  CHECK(subtitle(spec).empty());
  CHECK(!scale(spec, "y").contains("domain"));
  plot.y.log = false;
  plot.series.erase(plot.series.begin());  // the two that are left are 10^4 apart too
  plot.series.front().y = {0.0, 0.0};      // nothing but zeros is no reason to clip
  plot.series.front().low = plot.series.front().high = {0.0, 0.0};
  CHECK(!scale(spec_of(plot), "y").contains("domain"));
}

TEST_CASE("shares and errors begin at zero, other axes where their values do", "[experiment]") {
  const auto zero = [](std::vector<double> y) {
    return scale(spec_of(Plot{"p", "t", {"x"}, {"y"}, {{"s", {1, 2}, std::move(y)}}}), "y")["zero"]
        .get<bool>();
  };
  CHECK(zero({1.0, 90.0}));
  CHECK_FALSE(zero({80.0, 90.0}));
  CHECK_FALSE(zero({-1.0, 90.0}));
}

TEST_CASE("ticks of log axes are powers where numbers would be long", "[experiment]") {
  for (const auto& [axis, low, high, powers] :
       std::vector<std::tuple<Axis, double, double, bool>>{{{"error", true, 10}, 1e-4, 10.0, true},
                                                           {{"error", true, 10}, 1.0, 1e6, true},
                                                           {{"error", true, 10}, 0.02, 0.6, false},
                                                           {{"error", true, 10}, 1e-3, 1e4, false},
                                                           {{"K", true, 2}, 128, 131072, false},
                                                           {{"K", true, 2}, 128, 262144, true},
                                                           {{"K", true, 2}, 0x1p-9, 1, true}}) {
    CAPTURE(axis.log_base, low, high);
    const std::string expression = label_expression(axis, low, high);
    const std::string raised = fmt::format("'{}' + ", axis.log_base);
    CHECK((expression.find(raised) != std::string::npos) == powers);
    CHECK_THAT(expression, contains("datum.label == ''"));
  }
  CHECK(label_expression({"x"}, 1.0, 1e6).empty());
}

TEST_CASE("a second scale of x has ticks at whole powers of its own", "[plots]") {
  Plot plot{
      "p", "t", {"outlier", true, 10, SecondScale{"in σ", 0.5}}, {"y"}, {{"s", {1, 1000}, {1, 2}}}};
  json spec = spec_of(plot);
  CHECK(spec["resolve"]["axis"]["x"] == "independent");
  json axes = json::array();
  for (const json& layer : spec["layer"])
    if (const json& axis = layer["encoding"]["x"]["axis"]; !axis.is_null()) axes.push_back(axis);
  REQUIRE(axes.size() == 2);
  CHECK(axes[0]["title"] == json{"outlier"});
  CHECK((axes[1]["title"] == "in σ" && axes[1]["orient"] == "top"));
  CHECK(axes[1]["values"] == json{5.0, 50.0, 500.0});  // 10, 100 and 1000 of 0.5
  // The page makes the axis linear: what labels its ticks divides there too.
  const std::string label = axes[1]["labelExpr"];
  CHECK_THAT(label, contains("log_x ? ") &&
                        contains(" : datum.label == '' ? '' : format(datum.value / 0.5, '.3~r')"));
  plot.x.second->unit = 0.0;
  CHECK_THROWS_WITH(plot_json(plot), contains("a positive number, got 0"));
}

TEST_CASE("a heat map's specification has its cells and their numbers", "[experiment]") {
  HeatMap map{"m", "t", "x", "y", "v", {"a", "b"}, {"c", "d^2"}, {0.0, 2.0, kNan, kInfinity}, true};
  const json spec = spec_of(map);
  CHECK(spec["data"]["values"] ==
        json::parse(R"([{"row": 0, "column": [0, 1], "value": [0.0, 2.0], "text": ["0", "2"]},
                        {"row": 1, "column": [1], "value": [null], "text": ["inf"]}])"));
  CHECK(spec["usermeta"] ==
        json::parse(R"({"kind": "heat_map", "columns": ["a", "b"], "rows": ["c", "d²"],
                                           "x": "x", "y": "y", "value": "v"})"));
  CHECK(subtitle(spec) == "grey: 2 cells ≤ 0 (log colours) or infinite");
  CHECK(spec["encoding"]["y"]["scale"]["domain"] == json{1, 0});  // the first row is the lowest
}

TEST_CASE("a heat map's colours are logarithmic where it says so, and end where its note says",
          "[plots]") {
  const auto colours = [](const HeatMap& map) {
    return spec_of(map)["layer"][0]["encoding"]["color"]["condition"]["scale"];
  };
  for (const bool log : {true, false})
    CHECK(colours(map_of({1.0, 10.0, 100.0}, log))["type"] == (log ? "log" : "linear"));
  std::vector<double> values;
  for (int i = 0; i < 48; ++i) values.push_back(2.4 + 0.4 * i / 47.0);
  for (int i = 0; i < 8; ++i) values.push_back(60.0 + 5.0 * i);
  CHECK_THAT(subtitle(spec_of(map_of(values, true))), contains("8 larger cells have the last one"));
  CHECK(colours(map_of(values, true))["domain"] == json{2.4, 2.8});
}

TEST_CASE("a map of many cells has colours alone", "[plots]") {
  const auto layers = [](std::size_t cells) {
    return spec_of(map_of(std::vector(cells, 1.0)))["layer"].size();
  };
  CHECK(layers(200) == 2);
  CHECK(layers(201) == 1);
}

TEST_CASE("a plot that does not fit together is refused", "[experiment]") {
  const Plot uneven{"p", "t", {"x"}, {"y"}, {{"s", {1, 2}, {1}}}};
  CHECK_THROWS_WITH(plot_json(uneven), contains("expected 2 y values, got 1"));
  Plot banded{"p", "t", {"x"}, {"y"}, {{"s", {1, 2, 3}, {2, 3, 4}}}};
  banded.series[0].low = {1, 2, 3};
  banded.series[0].high = {1, 2};
  CHECK_THROWS_WITH(plot_json(banded),
                    contains("expected a band of 3 values, got 3 low and 2 high"));
  CHECK_THROWS_WITH(plot_json(Plot{"p", "t", {"x", true, 3}, {"y"}, {}}),
                    contains("expected 10 or 2, got 3"));
  CHECK_THROWS_WITH(plot_json(Plot{"../p", "t", {"x"}, {"y"}, {}}), contains("'../p'"));
  const HeatMap small{"m", "t", "x", "y", "v", {"a", "b"}, {"c"}, {1.0}, false};
  CHECK_THROWS_WITH(plot_json(small), contains("got 1"));
}
