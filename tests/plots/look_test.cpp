#include "fp8lab/plots/look.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiment/sample_results.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/plots/draw.hpp"
#include "fp8lab/plots/gnuplot_text.hpp"
#include "fp8lab/plots/plot_json.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

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

HeatMap map_of(std::vector<double> values, bool log = false) {
  HeatMap map{"m", "t", "x", "y", "v", {}, {"r"}, {}, log};
  for (std::size_t i = 0; i < values.size(); ++i) map.columns.push_back(std::to_string(i));
  map.values = std::move(values);
  return map;
}

}  // namespace

TEST_CASE("a variant has the colour of what it varies, others the next one", "[plots]") {
  Plot plot = variants();
  CHECK(colours_of(plot) == Indices{0, 1, 0, 1, 2});
  CHECK_THAT(plot_json(plot), contains(R"("label":"a dashed","style":"dashed","x":[1.0,2.0],)"
                                       R"("y":[0.1,0.2],"colour":0})"));
  CHECK_THAT(plot_json(plot), contains(R"("y":[0.3,0.4],"colour":2})"));
  plot.series[3].like = 2;  // which has no colour of its own
  CHECK_THROWS_WITH(colours_of(plot), contains("like of series 'b dashed'") && contains("got 2"));
  plot.series[3].like = 9;
  CHECK_THROWS_WITH(plot_json(plot), contains("got 9"));
}

TEST_CASE("a heat map's colours are logarithmic where it says so", "[plots]") {
  const TemporaryFolder folder("log_map");
  for (const bool log : {true, false}) {
    write_plot(map_of({1.0, 10.0, 100.0}, log), folder.path());
    CHECK((read_file(folder.path() / "m.gp").find("set logscale cb") != std::string::npos) == log);
  }
}

TEST_CASE("the first curve lies above the others, dashed ones above all", "[plots]") {
  CHECK(drawing_order(variants()) == Indices{4, 1, 0, 3, 2});
  const TemporaryFolder folder("order");
  write_plot(variants(), folder.path());
  const std::string script = read_file(folder.path() / "p.gp");
  const auto at = [&](const std::string& text) { return script.find(text); };
  CHECK(at("index 4") < at("index 1"));
  CHECK(at("index 0") < at("index 3"));
  CHECK(at("keyentry") < at("index 4"));
  CHECK(at("title 'a'") < at("title 'b'"));
  CHECK(at("title 'b dashed'") < at("title 'c'"));
  REQUIRE(run_gnuplot(folder.path(), std::vector<std::string>{"p"}));
  const std::string svg = read_file(folder.path() / "p.svg");
  for (const char* label : {">a<", ">b<", ">a dashed<", ">c<"}) CHECK_THAT(svg, contains(label));
}

TEST_CASE("a few large cells do not take the colours of all others", "[plots]") {
  // 56 cells like the errors of recipes: most between 2.4 and 2.8, a few near 100.
  std::vector<double> values;
  for (int i = 0; i < 48; ++i) values.push_back(2.4 + 0.4 * i / 47.0);
  for (int i = 0; i < 8; ++i) values.push_back(60.0 + 5.0 * i);
  const ColourRange range = colour_range(map_of(values, true));
  CHECK(range.low < 2.4);
  CHECK((range.high >= 2.7 && range.high < 3.0));
  CHECK(range.beyond == 8);
  const TemporaryFolder folder("range");
  write_plot(map_of(values, true), folder.path());
  CHECK_THAT(read_file(folder.path() / "m.gp"), contains("8 larger cells have the last one"));

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
  CHECK(enhanced("N(0, 0.4^2)") == "'N(0, 0.4^{2})'");
  CHECK(enhanced("K^-1.50, 10^6.") == "'K^{-1.50}, 10^{6}.'");
  CHECK(enhanced("x w^T, dy^T x") == "'x w^{T}, dy^{T} x'");
  CHECK(enhanced("a^Tensor b^c ^") == "'a\\^Tensor b\\^c \\^'");
}

TEST_CASE("a second scale of x has the same range in other units", "[plots]") {
  const TemporaryFolder folder("second");
  Plot plot{
      "p", "t", {"outlier", true, 10, SecondScale{"in σ", 0.5}}, {"y"}, {{"s", {1, 1000}, {1, 2}}}};
  CHECK_THAT(plot_json(plot), contains(R"("second":{"label":"in σ","unit":0.5})"));
  write_plot(plot, folder.path());
  const std::string script = read_file(folder.path() / "p.gp");
  const auto range_of = [&](const std::string& axis) {
    const auto begin = script.find("set " + axis + "range [") + axis.size() + 11;
    std::size_t used = 0;
    const double low = std::stod(script.substr(begin), &used);
    return std::pair(low, std::stod(script.substr(begin + used + 1)));
  };
  CHECK(range_of("x2").first == range_of("x").first / 0.5);
  CHECK(range_of("x2").second == range_of("x").second / 0.5);
  CHECK_THAT(script, contains("set x2label 'in σ'") && contains("set logscale x2 10") &&
                         contains("set border 7"));
  REQUIRE(run_gnuplot(folder.path(), std::vector<std::string>{"p"}));
  CHECK_THAT(read_file(folder.path() / "p.svg"), contains("in σ"));
  plot.x.second->unit = 0.0;
  CHECK_THROWS_WITH(write_plot(plot, folder.path()), contains("a positive number, got 0"));
}
