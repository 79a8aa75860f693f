#include "lab/plots/draw.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "lab/plots/plot_json.hpp"

using namespace fp8lab;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

}  // namespace

TEST_CASE("plots and maps of every kind become files, empty ones too", "[experiment]") {
  const TemporaryFolder folder("drawn");
  Plot plot{
      "styles", "Styles_{a} ‘µ’ '`x`' \"q\" <i> N(0, 0.4^2)", {"x (1)"}, {"y (%)", true, 10}, {}};
  for (const auto style : {Series::Style::lines, Series::Style::points, Series::Style::lines_points,
                           Series::Style::steps, Series::Style::dashed})
    for (int i = 0; i < 2; ++i)
      plot.series.push_back(
          {fmt::format("s{}", plot.series.size()), {1, 2, 3}, {0.1, 0.2, 0.4}, style});
  Plot second{"second", "Second", {"x", true, 10, SecondScale{"in σ", 0.5}}, {"y"}, {}};
  second.series.push_back({"s", {1, 1000}, {1, 2}});
  second.series[0].low = {0.5, 1.5};
  second.series[0].high = {1.5, 2.5};
  const auto write = [&](const auto& drawn) {
    write_file(folder.path() / (drawn.name + ".json"), plot_json(drawn));
  };
  write(plot);
  write(second);
  write(Plot{"nothing", "Nothing", {"x"}, {"y"}, {}});
  write(HeatMap{"map", "Map", "x", "y", "v", {"a", "b"}, {"c"}, {0.0, 2.0}, true});
  write(HeatMap{"empty_map", "Map", "x", "y", "v", {"a"}, {"c"}, {std::nan("")}, false});
  const std::vector<std::string> names{"styles", "second", "nothing", "map", "empty_map"};
  REQUIRE(draw_files(folder.path(), names));
  const auto svg = [&](const char* name) {
    return read_file(folder.path() / (fmt::format("{}.svg", name)));
  };
  for (const std::string& name : names) {
    INFO(name);
    CHECK_THAT(svg(name.c_str()), contains("</svg>"));
    CHECK(read_file(folder.path() / (name + ".png")).substr(1, 3) == "PNG");
    CHECK(read_file(folder.path() / (name + ".pdf")).starts_with("%PDF-"));
  }
  CHECK_THAT(svg("styles"), contains("Styles_{a} ‘µ’ '`x`' \"q\" &lt;i&gt; N(0, 0.4²)"));
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    CHECK_THAT(svg("styles"), contains(fmt::format(">s{}<", i)));
  CHECK_THAT(svg("second"), contains("in σ") && contains(">1000<"));
  CHECK_THAT(svg("nothing"), contains("no value to show"));
  CHECK(count(svg("map"), "#cccccc") == 1);  // 0 has no place on log colours
}

TEST_CASE("files drawn again are the same bytes", "[experiment]") {
  const TemporaryFolder folder("drawn_again");
  Plot plot{"bands", "Bands", {"x"}, {"y"}, {}};
  for (int i = 0; i < 8; ++i) {
    plot.series.push_back({fmt::format("s{}", i), {1, 2, 3}, {0.1, 0.2, 0.4}});
    plot.series.back().low = {0.05, 0.1, 0.2};
    plot.series.back().high = {0.2, 0.4, 0.8};
  }
  write_file(folder.path() / "bands.json", plot_json(plot));
  const std::vector<std::string> names{"bands"};
  const auto drawn = [&] {
    REQUIRE(draw_files(folder.path(), names));
    std::string bytes;
    for (const char* ending : {".svg", ".png", ".pdf"})
      bytes += read_file(folder.path() / fmt::format("bands{}", ending));
    return bytes;
  };
  const std::string first = drawn();
  for (int again = 0; again < 3; ++again) CHECK((drawn() == first));
}

TEST_CASE("a specification that cannot be drawn is an error that quotes why", "[experiment]") {
  const TemporaryFolder folder("refused");
  write_file(folder.path() / "bad.json", "{no such thing}\n");
  CHECK_THROWS_WITH(draw_files(folder.path(), std::vector<std::string>{"bad"}),
                    contains(folder.path().string()) && contains("bad: Expecting property name"));
  write_file(folder.path() / "good.json", plot_json(Plot{"good", "t", {"x"}, {"y"}, {}}));
  CHECK(draw_files(folder.path(), std::vector<std::string>{"good"}));  // it starts again
  CHECK(draw_files(folder.path(), {}));
}
