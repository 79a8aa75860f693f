// Whole specifications of plots and whole pages, kept in pages/ line by line: every field, word
// and place of them. Where they change on purpose,
//   FP8LAB_WRITE_PAGES=1 fp8lab_tests 'kept pages*'
// writes them; the change in version control is what to read.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/csv.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/plots/plot_json.hpp"
#include "lab/report/plots.hpp"
#include "lab/report/report.hpp"

namespace fp8lab::test::kept_pages {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void check_kept(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(FP8LAB_KEPT_PAGES) / name;
  if (std::getenv("FP8LAB_WRITE_PAGES") != nullptr) write_file(path, text);
  const std::vector<std::string> kept = lines_of(read_file(path));
  const std::vector<std::string> got = lines_of(text);
  int shown = 0;
  for (std::size_t i = 0; i < std::min(kept.size(), got.size()) && shown < 8; ++i) {
    if (kept[i] == got[i]) continue;
    INFO(name << ", line " << i + 1);
    CHECK(got[i] == kept[i]);
    ++shown;
  }
  CHECK(got.size() == kept.size());
}

std::string pretty(const std::string& json) {
  return nlohmann::ordered_json::parse(json).dump(1) + "\n";
}

/// What stands between the style sheet and the scripts.
std::string body_of(const std::string& page) {
  const std::size_t begin = page.find("<header>");
  const std::size_t end = page.find("</main>");
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  return page.substr(begin, end - begin);
}

StoredTable table_of(const std::string& title, const std::string& file, const std::string& csv,
                     std::size_t point_columns = 0) {
  StoredTable table{title, file, {}, parse_csv(csv), csv, point_columns};
  for (const std::string& name : table.rows.front())
    table.columns.push_back({name,
                             name == "error" ? "%"
                             : name == "k"   ? "1"
                                             : "",
                             name + " <of> 2^3"});
  table.rows.erase(table.rows.begin());
  return table;
}

Plot every_style() {
  using enum Series::Style;
  Plot plot{
      "styles",
      "Loss of x^T over 2^-3 with a title that takes more than the columns that one line of it "
      "has (9 series, N(0, 0.4^2))",
      {"outlier 10^3", true, 2, SecondScale{"in σ^2", 0.5}},
      {"error (%)", true, 10},
      {}};
  plot.series = {{"lines", {1, 4, 4096}, {0.5, 0.25, 3e-5}, lines},
                 {"points", {2, 0, kEndless, kNone}, {1, 1, 1, 1}, points},
                 {"both", {1, 2}, {-1.0, 3.0}, lines_points},
                 {"steps", {1, 2}, {7.0, 9.0}, steps},
                 {"dashed^2", {1, 2}, {kNone, 9.5}, dashed},
                 {"lone", {3}, {2.0}, lines},
                 {"gone", {-1, -2}, {2.0, 3.0}, lines},
                 {"seventh", {1, 2}, {1.5, 2.5}, lines_points},
                 {"eighth", {1, 2}, {1.25, 2.25}, lines_points}};
  plot.series[0].low = {0.25, 0.0, 2e-5};
  plot.series[0].high = {0.75, 0.5, kNone};
  plot.series[4].like = 3;
  return plot;
}

Plot long_and_runaway() {
  Plot plot{"long", "Short", {"step"}, {"loss, nats"}, {}};
  Series series{"a curve of many points", {}, {}, Series::Style::lines_points};
  for (int i = 0; i < 83; ++i) {
    series.x.push_back(5 * i);
    series.y.push_back(4.0 - 0.03125 * i);
  }
  plot.series = {series, {"leaves", {0, 100}, {4.0, 3e9}}, {"minus", {0, 50}, {-kEndless, 2.5}}};
  return plot;
}

HeatMap map_of(std::size_t rows, std::size_t columns, bool log) {
  HeatMap map{"map", "Map (x^2)", "x^3", "y^-1", "share^2 (%)", {}, {}, {}, log};
  for (std::size_t c = 0; c < columns; ++c) map.columns.push_back(fmt::format("c{}", c));
  for (std::size_t r = 0; r < rows; ++r) map.rows.push_back(fmt::format("row {}", r));
  for (std::size_t i = 0; i < rows * columns; ++i)
    map.values.push_back(i == 1   ? kNone
                         : i == 2 ? -1.0
                         : i == 3 ? kEndless
                                  : 0.5 + 0.125 * static_cast<double>(i));
  return map;
}

/// What tells shapes of maps apart.
std::string shape_of(const HeatMap& map) {
  const auto spec = nlohmann::json::parse(plot_json(map));
  return nlohmann::json{spec["height"], spec["config"]["axisX"], spec["config"]["axisY"],
                        spec["layer"].size()}
      .dump();
}

StoredRun run_of(const std::string& name) {
  StoredRun run;
  run.folder = "out/" + name;
  run.experiment = name;
  run.question = "Does " + name + " <fall> like 2^-3?";
  run.command = "fp8lab run " + name + " --set 'k=[1]'";
  run.findings = {"Error 10^-3 & less."};
  run.parameters = {{"k", "1, 2"}, {"name", "<x>"}};
  run.facts = {{"seed", "3"}, {"version", "1.2"}, {"threads", "4"}};
  run.tables = {table_of("Errors <b>", "error.csv",
                         "k,error,error_max,note\n1,0.123456789,2,a\n2,inf,3,"
                         "a text that is longer than a cell has room for\n3,,4,b\n")};
  run.plots = {{"p", "Pic <1>", "<svg>", ""}};
  return run;
}

StoredRun sweep_of() {
  StoredRun sweep = run_of("swept");
  sweep.sweep = true;
  sweep.findings.clear();
  sweep.plots.clear();
  sweep.facts = {{"axis k", "1,2,4"}, {"repeats", "2"}, {"seed", "3"}};
  std::string csv = "k,format,repeat,seed,error,count\n";
  int seed = 0;
  for (const int k : {1, 2, 4})
    for (const char* format : {"e4m3", "e5m2", "e2m1"})
      for (const int repeat : {0, 1}) {
        ++seed;
        csv += fmt::format("{},{},{},{},{}.5,{}\n", k, format, repeat, seed,
                           k * (repeat + 8) + format[1] - '0', seed % 5);
      }
  sweep.tables = {table_of("Swept", "swept.csv", csv, 4)};
  add_sweep_plots(sweep);
  return sweep;
}

StoredRun claims_run() {
  StoredRun run = run_of("claims");
  run.quick = true;
  run.tables = {
      table_of("Claims", "claims.csv",
               "id,claim,source,criterion,measured,verdict\n"
               "A1,2^3 <is> 8,book,if it is,8,holds\nA2,no,book,never,1 > 0,does not hold\n"
               "A3,yes,page,always,3,holds\n")};
  run.plots = {
      {"p", "Pic", "",
       R"({"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "t": "</script>"})"},
      {"q", "Empty", "", ""}};
  run.headline = Headline{.title = "Title 2^2 <b>",
                          .sentence = "Sentence.",
                          .plot = "p",
                          .advice = "Advice & more.",
                          .measure = "measure",
                          .failing = "90 %",
                          .mitigation = "remedy",
                          .mitigated = "1 %"};
  run.plots_note = "no library";
  return run;
}

}  // namespace

TEST_CASE("kept pages: specifications of plots", "[report]") {
  check_kept("styles.json", pretty(plot_json(every_style())));
  check_kept("long.json", pretty(plot_json(long_and_runaway())));
  for (const bool log : {true, false})
    check_kept(log ? "log_map.json" : "linear_map.json", pretty(plot_json(map_of(3, 5, log))));
  std::string shapes;
  for (const std::size_t rows : {30U, 31U})
    for (const std::size_t columns : {6U, 7U})
      shapes += shape_of(map_of(rows, columns, false)) + "\n";
  for (const std::size_t letters : {11U, 12U, 40U, 41U}) {
    HeatMap wide = map_of(2, 8, false);
    wide.columns[5] = std::string(letters, 'w');
    HeatMap beside = map_of(2, 8, false);
    beside.rows[1] = std::string(letters, 'w');
    shapes += shape_of(wide) + "\n" + shape_of(beside) + "\n";
  }
  check_kept("map_shapes.txt", shapes);
}

TEST_CASE("kept pages: a report", "[report]") {
  const std::vector<StoredRun> runs{run_of("first"), claims_run(), sweep_of()};
  check_kept("report.html", body_of(html_report(runs)));
}

TEST_CASE("kept pages: a comparison", "[report]") {
  std::vector<StoredRun> a{run_of("first"), claims_run(), sweep_of()};
  std::vector<StoredRun> b{run_of("first"), claims_run(), run_of("other")};
  b[0].folder = "out/again";
  b[0].question = "Another?";
  b[0].findings = {"Error 10^-4 & less.", "More."};
  b[0].parameters = {{"k", "1, 4"}, {"name", "<x>"}};
  b[0].facts = {{"seed", "3"}, {"version", "1.2"}, {"threads", "8"}};
  // Six columns that differ: more than are named in sight.
  a[0].tables.push_back(
      table_of("Wide", "wide.csv", "k,c,d,e,f,g,h\n1,1,1,1,1,1,1\n2,2,2,2,2,2,2\n"));
  b[0].tables.push_back(
      table_of("Wide", "wide.csv", "k,c,d,e,f,g,h\n1,2,-1,0,1e9,x,1\n3,2,2,2,2,2,2\n"));
  a[0].tables.push_back(table_of("One", "one.csv", "error\n5\n"));
  b[0].tables.push_back(table_of("One", "one.csv", "error\n8\n"));
  a[0].tables.push_back(table_of("Equal", "equal.csv", "k,note\n1,x\n1,x\n"));
  b[0].tables.push_back(table_of("Equal", "equal.csv", "k,note\n1,y\n1,x\n"));
  for (int i = 0; i < 3; ++i) {
    const std::string name = fmt::format("left{}", i);
    a[0].tables.push_back(table_of(name, name + ".csv", "k\n1\n"));
  }
  check_kept("comparison.html", body_of(html_comparison(a, b)));
}

}  // namespace fp8lab::test::kept_pages
