#include "fp8lab/plots/draw.hpp"
#include "fp8lab/plots/plot_json.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiment/sample_results.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/plots/gnuplot_text.hpp"
#include "fp8lab/plots/tics.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::vector<std::string> labels(const AxisLayout& layout) {
  std::vector<std::string> shown;
  for (const Tic& tic : layout.tics)
    if (!tic.minor) shown.push_back(tic.label);
  return shown;
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("log axes have few, readable tics", "[experiment]") {
  const Axis ten{"error", true, 10};
  const Axis two{"K", true, 2};
  CHECK(labels(lay_out(ten, std::vector{1e-3, 10.0})) ==
        Labels{"10^{-3}", "10^{-2}", "10^{-1}", "10^{0}", "10^{1}"});
  CHECK(labels(lay_out(ten, std::vector{1e-20, 1e20})) == Labels{"10^{-20}", "10^{-15}", "10^{-10}",
                                                                 "10^{-5}", "10^{0}", "10^{5}",
                                                                 "10^{10}", "10^{15}", "10^{20}"});
  CHECK(labels(lay_out(ten, std::vector{0.02, 0.6})) ==
        Labels{"0.02", "0.05", "0.1", "0.2", "0.5"});
  CHECK(labels(lay_out(two, std::vector{128.0, 1024.0})) == Labels{"128", "256", "512", "1024"});
  CHECK(labels(lay_out(two, std::vector{128.0, 32768.0})) ==
        Labels{"128", "512", "2048", "8192", "32768"});
}

TEST_CASE("every log axis has at least two labels and at most ten, inside its range",
          "[experiment]") {
  int axes = 0;
  for (const int base : {2, 10})
    for (double low = 1e-30; low < 1e30; low *= 7.3)
      for (double ratio = 1.0; ratio < 1e40; ratio = ratio * 1.7 + 0.01) {
        const AxisLayout layout = lay_out({"x", true, base}, std::vector{low, low * ratio});
        INFO("base " << base << " low " << low << " high " << low * ratio);
        const std::size_t count = labels(layout).size();
        ++axes;
        if (count < 2 || count > 10) FAIL("labels: expected 2 to 10, got " << count);
        for (const Tic& tic : layout.tics)
          if (tic.position < layout.low * (1 - 1e-9) || tic.position > layout.high * (1 + 1e-9))
            FAIL("tic " << tic.position << " outside " << layout.low << " " << layout.high);
      }
  CHECK(axes > 2 * 60 * 150);
}

TEST_CASE("axes of no value, of one value and from zero", "[experiment]") {
  CHECK(lay_out({"x"}, {}).high == 1.0);
  const AxisLayout one = lay_out({"x"}, std::vector{3.0});
  CHECK((one.low < 3.0 && one.high > 3.0));
  CHECK(lay_out({"x"}, std::vector{1.0, 90.0}).low == 0.0);
  CHECK(lay_out({"x"}, std::vector{80.0, 90.0}).low > 70.0);
  CHECK(lay_out({"x"}, std::vector{3.0, 9.0}, 0.1).low > 2.0);
  CHECK(lay_out({"x", true}, std::vector{-1.0, 0.0}).low > 0.0);
  CHECK_THROWS_WITH(lay_out({"x", true, 3}, {}), contains("expected 10 or 2, got 3"));
}

TEST_CASE("text is drawn as it is written", "[experiment]") {
  CHECK(enhanced("a_b^{c} & d@e~f\\") == "'a\\_b\\^\\{c\\} \\& d\\@e\\~f\\\\'");
  CHECK(enhanced("it's `ls`\nnext") == "'it''s `ls`'.\"\\n\".'next'");
}

TEST_CASE("plots leave out what an axis cannot show, and count it", "[experiment]") {
  const TemporaryFolder folder("plot");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Plot plot{
      "p",
      "title",
      {"x"},
      {"y", true},
      {{"kept", {1, 2, 3, 4, 5}, {0.5, 0.0, kNan, kInfinity, 2.0}}, {"gone", {1}, {-1}}}};
  write_plot(plot, folder.path());
  CHECK(read_file(folder.path() / "p.dat") ==
        "# title\n# x: x\n# y: y\n\n\n# kept\n1 0.5\nnan nan\nnan nan\nnan nan\n5 2\n");
  const std::string script = read_file(folder.path() / "p.gp");
  CHECK_THAT(script, contains("2 values ≤ 0 left out (log axis); 1 infinite value left out; "
                              "nothing to show for: gone"));
  CHECK_THAT(script, contains("set logscale y 10"));
}

TEST_CASE("a curve that runs away leaves the picture to the others", "[experiment]") {
  const TemporaryFolder folder("plot");
  Plot plot{"p",
            "title",
            {"x"},
            {"loss"},
            {{"stays", {1, 2}, {0.5, 4.0}},
             {"diverges", {1, 2}, {4.0, 5e7}, Series::Style::lines, {4.0, 4e7}, {4.0, 6e7}},
             {"explodes", {1, 2}, {4.0, 1e30}}}};
  write_plot(plot, folder.path());
  std::string script = read_file(folder.path() / "p.gp");
  CHECK_THAT(script, contains("explodes leaves the plot, to 1e+30; diverges leaves the plot, "
                              "to 5e+07"));
  const auto top = [&] {
    const auto at = script.find(':', script.find("set yrange ["));
    return std::stod(script.substr(at + 1));
  };
  CHECK(top() >= 4.0);
  CHECK(top() < 10.0);
  plot.y.log = true;  // which has room for all
  write_plot(plot, folder.path());
  script = read_file(folder.path() / "p.gp");
  CHECK(script.find("leaves the plot") == std::string::npos);
  CHECK(top() >= 1e30);
  plot.y.log = false;
  plot.series.erase(plot.series.begin());  // the two that are left are 10^4 apart too
  plot.series.front().y = {0.0, 0.0};      // nothing but zeros is no reason to clip
  plot.series.front().low = plot.series.front().high = {0.0, 0.0};
  write_plot(plot, folder.path());
  script = read_file(folder.path() / "p.gp");
  CHECK(top() >= 1e30);
}

TEST_CASE("a band is drawn where both of its edges can be", "[experiment]") {
  const TemporaryFolder folder("band");
  Plot plot{"p", "t", {"x"}, {"y", true}, {{"s", {1, 2, 3}, {2.0, 3.0, 4.0}}}};
  plot.series[0].low = {1.0, 0.0, 3.5};
  plot.series[0].high = {3.0, 5.0, 50.0};
  write_plot(plot, folder.path());
  CHECK(read_file(folder.path() / "p.dat") ==
        "# t\n# x: x\n# y: y\n\n\n# s\n1 2 1 3\n2 3 nan nan\n3 4 3.5 50\n");
  const std::string script = read_file(folder.path() / "p.gp");
  CHECK_THAT(script, contains("using 1:3:4 with filledcurves"));
  CHECK_THAT(script, contains("set yrange [0.88926438639462") && contains(":56.226248"));
  REQUIRE(run_gnuplot(folder.path(), std::vector<std::string>{"p"}));
  plot.series[0].high.pop_back();
  CHECK_THROWS_WITH(write_plot(plot, folder.path()),
                    contains("expected a band of 3 values, got 3 low and 2 high"));
}

TEST_CASE("a plot as data has every value", "[experiment]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Plot plot{"p", "title <i>", {"x", true, 2}, {"y"}, {{"s", {1, 2}, {0.1, kInfinity}}}};
  CHECK(plot_json(plot) ==
        R"({"schema":"fp8lab.plot.1","name":"p","title":"title <i>",)"
        R"("x":{"label":"x","log":true,"base":2},"y":{"label":"y","log":false,"base":10},)"
        R"("series":[{"label":"s","style":"lines_points","x":[1.0,2.0],"y":[0.1,null]}]})"
        "\n");
  plot.series[0].low = {0.05, 1.0};
  plot.series[0].high = {0.2, 2.0};
  CHECK_THAT(plot_json(plot), contains(R"("y":[0.1,null],"low":[0.05,1.0],"high":[0.2,2.0]}]})"));
  const HeatMap map{"m", "t", "x", "y", "v", {"a", "b"}, {"c"}, {0.0, 2.0}, true};
  CHECK(plot_json(map) ==
        R"({"schema":"fp8lab.plot.1","name":"m","title":"t","x_label":"x","y_label":"y",)"
        R"("value_label":"v","log":true,"columns":["a","b"],"rows":["c"],"values":[0.0,2.0],)"
        R"("texts":["0","2"],"colours":[1.0,4.0],"beyond":0})"
        "\n");
}

TEST_CASE("gnuplot draws plots and maps of every kind, empty ones too", "[experiment]") {
  const TemporaryFolder folder("gnuplot");
  Plot plot{"styles", "Styles_{a} ‘µ’ '`x`' \"q\"", {"x (1)"}, {"y (%)", true, 10}, {}};
  for (const auto style : {Series::Style::lines, Series::Style::points, Series::Style::lines_points,
                           Series::Style::steps, Series::Style::dashed})
    for (int i = 0; i < 2; ++i) plot.series.push_back({"s", {1, 2, 3}, {0.1, 0.2, 0.4}, style});
  const Plot nothing{"nothing", "Nothing", {"x"}, {"y"}, {}};
  const HeatMap map{"map", "Map", "x", "y", "v", {"a", "b"}, {"c"}, {0.0, 2.0}, true};
  const HeatMap empty{"empty_map", "Map", "x", "y", "v", {"a"}, {"c"}, {std::nan("")}, false};
  write_plot(plot, folder.path());
  write_plot(nothing, folder.path());
  write_plot(map, folder.path());
  write_plot(empty, folder.path());
  const std::vector<std::string> names{"styles", "nothing", "map", "empty_map"};
  REQUIRE(run_gnuplot(folder.path(), names));
  for (const std::string& name : names) {
    INFO(name);
    CHECK_THAT(read_file(folder.path() / (name + ".svg")), contains("</svg>"));
    CHECK(read_file(folder.path() / (name + ".png")).substr(1, 3) == "PNG");
  }
  CHECK_THAT(read_file(folder.path() / "nothing.svg"), contains("no value to show"));
}

TEST_CASE("a script that gnuplot refuses is an error that quotes it", "[experiment]") {
  const TemporaryFolder folder("refused");
  write_file(folder.path() / "bad.gp", "no such command\n");
  CHECK_THROWS_WITH(run_gnuplot(folder.path(), std::vector<std::string>{"bad"}),
                    contains("invalid command"));
  write_file(folder.path() / "mute.gp", "\n");
  CHECK_THROWS_WITH(run_gnuplot(folder.path(), std::vector<std::string>{"mute"}),
                    contains("gnuplot left no mute.svg"));
}

TEST_CASE("a plot that does not fit together is refused", "[experiment]") {
  const TemporaryFolder folder("refused-plot");
  const Plot uneven{"p", "t", {"x"}, {"y"}, {{"s", {1, 2}, {1}}}};
  CHECK_THROWS_WITH(write_plot(uneven, folder.path()), contains("expected 2 y values, got 1"));
  const HeatMap small{"m", "t", "x", "y", "v", {"a", "b"}, {"c"}, {1.0}, false};
  CHECK_THROWS_WITH(write_plot(small, folder.path()), contains("got 1"));
  const Plot elsewhere{"../p", "t", {"x"}, {"y"}, {}};
  CHECK_THROWS_WITH(write_plot(elsewhere, folder.path()), contains("'../p'"));
}
