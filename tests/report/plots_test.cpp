#include "lab/report/plots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/csv.hpp"
#include "lab/report/slice.hpp"

using namespace fp8lab;

namespace {

/// A sweep's table: `axes` columns, repeat and seed, then its own.
StoredTable sweep_table(const std::string& csv, std::size_t axes) {
  StoredTable table{"Title", "error.csv", {}, parse_csv(csv), csv, axes + 2};
  for (const std::string& name : table.rows.front()) table.columns.push_back({name, "1", ""});
  table.rows.erase(table.rows.begin());
  return table;
}

using Labels = std::vector<std::string>;
using Numbers = std::vector<double>;

Labels labels_of(const Plot& plot) {
  Labels labels;
  for (const Series& series : plot.series) labels.push_back(series.label);
  return labels;
}

}  // namespace

TEST_CASE("a line for each value of the other axis, the mean over repeats", "[report]") {
  const StoredTable table = sweep_table(
      "k,recipe,repeat,seed,error,count\n"
      "16,mx,0,1,1,5\n16,mx,1,2,3,5\n16,te,0,3,4,5\n16,te,1,4,4,5\n"
      "32,mx,0,5,2,5\n32,mx,1,6,2,5\n32,te,0,7,100,5\n32,te,1,8,300,5\n"
      "64,mx,0,9,3,5\n64,mx,1,10,5,5\n64,te,0,11,6,5\n64,te,1,12,8,5\n",
      2);
  const ChosenPlots chosen = choose_plots(table);
  REQUIRE(chosen.plots.size() == 1);  // `count` never varies
  const Plot& plot = chosen.plots[0];
  CHECK(plot.title == "error: error against k (mean of 2 repeats)");
  CHECK(plot.x.log);
  CHECK(plot.x.log_base == 2);
  CHECK(plot.y.log);
  CHECK(labels_of(plot) == Labels{"mx", "te"});
  CHECK(plot.series[0].x == Numbers{16, 32, 64});
  CHECK(plot.series[0].y == Numbers{2, 2, 4});
  CHECK(plot.series[1].y == Numbers{4, 200, 7});
  REQUIRE(chosen.heat_maps.size() == 1);
  CHECK(chosen.heat_maps[0].columns == Labels{"16", "32", "64"});
  CHECK(chosen.heat_maps[0].rows == Labels{"mx", "te"});
  CHECK(chosen.heat_maps[0].values == Numbers{2, 2, 4, 4, 200, 7});
  CHECK(chosen.findings ==
        Labels{"error: error is smallest, 2 at k = 16, recipe = mx, and largest, 200 "
               "at k = 32, recipe = te (mean of 2 repeats)."});
}

TEST_CASE("a finding names the axes that matter, and no place that chance may have chosen",
          "[report]") {
  // The error follows k; sigma changes nothing but the draw.
  std::string csv = "k,sigma,repeat,seed,error\n";
  constexpr std::array<double, 4> kNoise{-0.02, 0.01, 0.03, -0.01};
  std::size_t draw = 0;
  for (const int k : {16, 32})
    for (const char* sigma : {"0.1", "0.4"})
      for (int repeat = 0; repeat < 4; ++repeat, ++draw)
        csv += fmt::format("{},{},{},1,{}\n", k, sigma, repeat,
                           k + kNoise[(draw + draw / 4) % kNoise.size()]);
  CHECK(choose_plots(sweep_table(csv, 2)).findings ==
        Labels{"error: error is smallest, 16 at k = 16, and largest, 32 at k = 32; it does not "
               "depend on sigma beyond the spread of its draws (mean of 4 repeats)."});

  std::string flat = "sigma,repeat,seed,error\n";
  for (const char* sigma : {"0.1", "0.4"})
    for (int repeat = 0; repeat < 4; ++repeat, ++draw)
      flat += fmt::format("{},{},1,{}\n", sigma, repeat, 2.0 + kNoise[(draw * 3) % kNoise.size()]);
  const std::string finding = choose_plots(sweep_table(flat, 1)).findings.at(0);
  CHECK_THAT(finding, contains("error: error does not depend on sigma beyond the spread"));
  CHECK_THAT(finding, !contains("smallest"));

  // The first draws are the other way round than the means.
  std::string turned = "k,repeat,seed,error\n";
  for (int repeat = 0; repeat < 8; ++repeat)
    turned += fmt::format("16,{0},1,{1}\n32,{0},1,{2}\n", repeat, repeat == 0 ? 21 : 10,
                          repeat == 0 ? 20 : 30);
  CHECK_THAT(choose_plots(sweep_table(turned, 1)).findings.at(0),
             contains("error is smallest, 11.38 at k = 16, and largest, 28.75 at k = 32"));

  // One draw a point: nobody knows.
  const std::string once =
      choose_plots(sweep_table("sigma,repeat,seed,error\n0.1,0,1,2\n0.4,0,1,3\n", 1))
          .findings.at(0);
  CHECK(once ==
        "error: error lies between 2 and 3; only repeats of each point can show whether the place "
        "of the "
        "smallest value is due to chance.");
}

TEST_CASE("an axis that is not geometric is linear, its numbers sorted", "[report]") {
  const ChosenPlots chosen =
      choose_plots(sweep_table("k,repeat,seed,error\n3,0,1,0.3\n1,0,2,0.1\n2,0,3,0.2\n", 1));
  REQUIRE(chosen.plots.size() == 1);
  CHECK(chosen.heat_maps.empty());
  CHECK_FALSE(chosen.plots[0].x.log);
  CHECK_FALSE(chosen.plots[0].y.log);
  CHECK(chosen.plots[0].series[0].x == Numbers{1, 2, 3});
  CHECK(chosen.plots[0].series[0].y == Numbers{0.1, 0.2, 0.3});
  CHECK(labels_of(chosen.plots[0]) == Labels{""});
}

TEST_CASE("an axis is logarithmic from three values of one ratio on", "[report]") {
  struct Case {
    std::string values;
    double base;  ///< 0: linear
  };
  for (const Case& c :
       {Case{"1,2", 0}, Case{"1,2,4", 2}, Case{"3,12,48,192", 2}, Case{"0.5,1,2", 2},
        Case{"1,10,100", 10}, Case{"1,3,9", 10}, Case{"1,2.02,4.08", 10}, Case{"1,2,4.03", 2},
        Case{"1,2,4.05", 0}, Case{"1,2,3.95", 0}, Case{"1,2,4,9", 0}, Case{"0,1,1000", 0},
        Case{"-4,-2,-1", 0}, Case{"1000,100,10,1", 10}}) {
    std::string csv = "k,repeat,seed,error\n";
    for (std::size_t at = 0; at < c.values.size();) {
      const std::size_t end = std::min(c.values.find(',', at), c.values.size());
      csv += fmt::format("{},0,1,{}\n", c.values.substr(at, end - at), csv.size());
      at = end + 1;
    }
    const ChosenPlots chosen = choose_plots(sweep_table(csv, 1));
    INFO(c.values);
    REQUIRE(chosen.plots.size() == 1);
    CHECK(chosen.plots[0].x.log == (c.base != 0.0));
    CHECK(chosen.plots[0].x.log_base == (c.base == 2.0 ? 2 : 10));
  }
}

TEST_CASE("values are drawn on a logarithmic axis from a ratio of thirty on", "[report]") {
  for (const auto& [least, most, log] : {std::tuple{"1", "30", true},
                                         {"1", "29.9", false},
                                         {"0", "1000", false},
                                         {"-1", "1000", false},
                                         {"0.01", "inf", false},
                                         {"0.01", "0.5", true}}) {
    const ChosenPlots chosen = choose_plots(sweep_table(
        fmt::format("k,repeat,seed,error\n1,0,1,{}\n2,0,1,{}\n3,0,1,{}\n", least, most, least), 1));
    INFO(least << " to " << most);
    REQUIRE(chosen.plots.size() == 1);
    CHECK(chosen.plots[0].y.log == log);
  }
}

TEST_CASE("rows that nothing tells apart have no dimension of their own", "[report]") {
  const StoredTable table =
      sweep_table("k,repeat,seed,error\n1,0,1,5\n1,0,1,5\n1,0,1,8\n2,0,2,7\n", 1);
  CHECK_FALSE(own_keys(table));
  REQUIRE(dimensions_of(table).size() == 1);
  CHECK(dimensions_of(table)[0].name == "k");
  const ChosenPlots chosen = choose_plots(table);
  REQUIRE(chosen.plots.size() == 1);
  CHECK(labels_of(chosen.plots[0]) == Labels{""});
  CHECK(chosen.plots[0].series[0].y == Numbers{6, 7});
}

TEST_CASE("a dimension is a number if each of its values is one", "[report]") {
  // Whatever value comes first or last: one that is text makes all of them labels.
  for (const char* order : {"tensor,16,32", "16,tensor,32", "16,32,tensor"}) {
    const std::string list = order;
    std::string csv = "k,tile,repeat,seed,error\n";
    for (const std::size_t k : {1U, 2U, 3U})
      for (std::size_t at = 0; at < list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        const std::string tile = list.substr(at, end - at);
        csv += fmt::format("{},{},0,{},{}\n", k, tile, csv.size(), k + tile.size());
        at = end + 1;
      }
    INFO(order);
    const ChosenPlots chosen = choose_plots(sweep_table(csv, 2));
    for (const Plot& plot : chosen.plots) CHECK(plot.x.label == "k");
    for (const StoredTable& table : {sweep_table(csv, 2)})
      for (const Dimension& dimension : dimensions_of(table))
        CHECK(dimension.numeric == (dimension.name != "tile"));
  }
}

TEST_CASE("rows of a point that are too many are held at the middle number", "[report]") {
  std::string csv = "k,repeat,seed,outlier,scales,error\n";
  for (const int k : {1, 2})
    for (int outlier = 1; outlier <= 9; ++outlier)
      for (const char* scales : {"tensor", "tile"})
        csv += fmt::format("{},0,{},{},{},{}\n", k, k, outlier, scales, 100 * k + outlier);
  const ChosenPlots chosen = choose_plots(sweep_table(csv, 1));
  REQUIRE(chosen.plots.size() == 1);
  CHECK(chosen.plots[0].title == "error: error against k (outlier = 5)");
  CHECK(labels_of(chosen.plots[0]) == Labels{"tensor", "tile"});
  CHECK(chosen.plots[0].series[0].y == Numbers{105, 205});
}

TEST_CASE("cells are numbers as a whole or not at all", "[report]") {
  CHECK(number_in("1.5") == 1.5);
  CHECK(number_in("-2e3") == -2000.0);
  CHECK(number_in("inf") == INFINITY);
  CHECK(std::isnan(number_in("nan").value_or(0.0)));
  for (const char* text : {"", " 1", "1 ", "1x", "x", "1,5", "0x10", "tensor"}) {
    INFO("'" << text << "'");
    CHECK_FALSE(number_in(text));
  }
  const StoredTable table = sweep_table(
      "k,repeat,seed,empty,some,mixed,some_min,some_max,mixed_maximum,_max\n"
      "1,0,1,,,1,1,1,1,1\n2,0,1,,5,x,2,2,2,2\n",
      1);
  const std::vector<bool> numeric{true, true, true, false, true, false, true, true, true, true};
  for (std::size_t c = 0; c < numeric.size(); ++c) {
    INFO(table.columns[c].name);
    CHECK(is_numeric(table, c) == numeric[c]);
    CHECK(is_spread(table, c) == (c == 6 || c == 7));
  }
  // The axes and the repeat, not the seed; then what the table has of its own.
  const std::vector<std::string> row{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  CHECK(row_key(table, row, 0) == Labels{"a", "b"});
  CHECK(row_key(table, row, 2) == Labels{"a", "b", "d", "e"});
  StoredTable of_run = table;
  of_run.point_columns = 0;
  CHECK(row_key(of_run, row, 0).empty());
  CHECK(row_key(of_run, row, 1) == Labels{"a"});
  CHECK(own_keys(table) == 0);
  CHECK(own_keys(of_run) == 1);
}

TEST_CASE("dimensions are held at the middle number, the varying label or the first", "[report]") {
  const StoredTable table = sweep_table(
      "k,recipe,repeat,seed,error\n"
      "4,te,0,1,1\n1,te,0,1,2\n3,mx,0,1,3\n2,varies,0,1,4\n3,te,0,1,5\n",
      2);
  const std::vector<Dimension> dimensions = dimensions_of(table);
  REQUIRE(dimensions.size() == 2);
  CHECK((dimensions[0].name == "k" && dimensions[0].axis && dimensions[0].numeric));
  CHECK(dimensions[0].values == Labels{"1", "2", "3", "4"});
  CHECK(dimensions[0].of_row == std::vector<std::size_t>{3, 0, 2, 1, 2});
  CHECK((dimensions[1].name == "recipe" && dimensions[1].axis && !dimensions[1].numeric));
  CHECK(dimensions[1].values == Labels{"te", "mx", "varies"});
  using Rows = std::vector<std::size_t>;
  Slice by_k(table, dimensions);
  CHECK(by_k.held().empty());
  CHECK(by_k.rows() == Rows{0, 1, 2, 3, 4});
  by_k.hold(0);
  CHECK(by_k.rows() == Rows{2, 4});
  CHECK(by_k.held() == "k = 3");
  CHECK(by_k.values(1) == Rows{0, 1});
  by_k.hold(0);  // one value is held as it is
  CHECK(by_k.held() == "k = 3");
  by_k.hold(1);
  CHECK(by_k.rows() == Rows{4});
  CHECK(by_k.held() == "k = 3, recipe = te");
  Slice by_recipe(table, dimensions);
  by_recipe.hold(1);
  CHECK(by_recipe.rows() == Rows{3});
  CHECK(by_recipe.held() == "recipe varies");
  Slice both(table, dimensions);
  both.hold_until({0, 1}, 5);
  CHECK(both.held().empty());
  both.hold_until({0, 1}, 4);  // k has more values
  CHECK(both.held() == "k = 3");
  both.hold_until({1}, 1);
  CHECK(both.held() == "k = 3, recipe = te");
}

TEST_CASE("a key that an axis sets is one line, not a point each", "[report]") {
  const StoredTable table = sweep_table(
      "tile,repeat,seed,scales,error\n"
      "16,0,1,per tensor,0.5\n16,0,1,per tile of 16,0.1\n"
      "32,0,2,per tensor,0.5\n32,0,2,per tile of 32,0.2\n",
      1);
  const Plot plot = choose_plots(table).plots.at(0);
  CHECK(labels_of(plot) == Labels{"per tensor", "scales varies"});
  CHECK(plot.series[1].y == Numbers{0.1, 0.2});
}

TEST_CASE("rows are told apart by their place only if all points have as many", "[report]") {
  const StoredTable even =
      sweep_table("k,repeat,seed,error\n1,0,1,5\n1,0,1,6\n2,0,2,7\n2,0,2,8\n", 1);
  REQUIRE(dimensions_of(even).size() == 2);
  CHECK(dimensions_of(even)[1].name == "row");
  CHECK(dimensions_of(even)[1].values == Labels{"1", "2"});
  // The first point has fewer rows than the second, or more.
  for (const char* csv : {"k,repeat,seed,error\n1,0,1,5\n2,0,2,6\n2,0,2,7\n",
                          "k,repeat,seed,error\n1,0,1,5\n1,0,1,6\n2,0,2,7\n"})
    CHECK(dimensions_of(sweep_table(csv, 1)).at(1).values.size() == 3);
}

TEST_CASE("an axis of labels gives a map with the rows of a point", "[report]") {
  const StoredTable table = sweep_table(
      "recipe,repeat,seed,tensor,error\n"
      "mx,0,1,a,0.5\nmx,0,1,b,0.1\nte,0,2,a,0.25\nte,0,2,b,0.75\n",
      1);
  const ChosenPlots chosen = choose_plots(table);
  CHECK(chosen.plots.empty());
  REQUIRE(chosen.heat_maps.size() == 1);
  CHECK(chosen.heat_maps[0].columns == Labels{"mx", "te"});
  CHECK(chosen.heat_maps[0].rows == Labels{"a", "b"});
  CHECK(chosen.heat_maps[0].values == Numbers{0.5, 0.25, 0.1, 0.75});
}

TEST_CASE("one axis of numbers gives lines alone, whatever the rows of a point", "[report]") {
  const ChosenPlots chosen =
      choose_plots(sweep_table("k,repeat,seed,tensor,error\n"
                               "1,0,1,a,0.5\n1,0,1,b,0.1\n2,0,2,a,0.25\n2,0,2,b,0.75\n",
                               1));
  CHECK(chosen.heat_maps.empty());
  REQUIRE(chosen.plots.size() == 1);
  CHECK(labels_of(chosen.plots[0]) == Labels{"a", "b"});
  CHECK(chosen.plots[0].series[0].y == Numbers{0.5, 0.25});
  CHECK(chosen.plots[0].series[1].y == Numbers{0.1, 0.75});
}

TEST_CASE("points that failed leave a gap, and text alone nothing to draw", "[report]") {
  const ChosenPlots gap = choose_plots(
      sweep_table("k,m,repeat,seed,error\n1,1,0,1,0.5\n1,2,0,1,0.5\n2,2,0,1,nan\n", 2));
  REQUIRE(gap.heat_maps.size() == 1);
  CHECK(gap.heat_maps[0].values[0] == 0.5);
  CHECK(std::isnan(gap.heat_maps[0].values[1]));
  CHECK(std::isnan(gap.heat_maps[0].values[3]));
  const ChosenPlots none =
      choose_plots(sweep_table("k,repeat,seed,error\n1,0,1,bad k\n2,0,1,worse k\n", 1));
  CHECK(none.plots.empty());
  CHECK(none.heat_maps.empty());
  CHECK(none.findings.empty());
  CHECK(choose_plots(sweep_table("k,repeat,seed,error\n", 1)).plots.empty());
}
