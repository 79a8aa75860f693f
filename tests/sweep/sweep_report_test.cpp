#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "lab/report/plots.hpp"
#include "lab/report/report.hpp"
#include "sweep/toy.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

void sweep(const SweepPlan& plan, const fs::path& folder) {
  run_sweep(plan, folder, false, on_threads(1), {});
}

const std::string* fact_of(const StoredRun& run, const std::string& name) {
  for (const auto& [key, value] : run.facts)
    if (key == name) return &value;
  return nullptr;
}

TEST_CASE("a finished sweep is a report's input", "[sweep][report]") {
  const TemporaryFolder folder("sweep-report");
  sweep(toy_plan({"k=1,2", "gain=0.25:1:*2", "tiles=16"}, 2), folder.path());
  CHECK(holds_results(folder.path()));
  const StoredRun run = read_run(folder.path());
  CHECK(run.sweep);
  CHECK(run.experiment == "toy");
  CHECK(run.question == "?");
  CHECK(*fact_of(run, "axis gain") == "0.25,0.5,1");
  CHECK(*fact_of(run, "repeats") == "2");
  CHECK(run.tables.at(0).point_columns == 5);
  CHECK(run.findings.at(0) ==
        "12 points of toy over k x gain x tiles, 2 repeats of each: all ran.");
  CHECK_THAT(run.findings.at(1),
             contains("toy: draw does not depend on") || contains("toy: draw is smallest"));
  CHECK(run.plots_note.empty());
  REQUIRE(run.plots.size() == 2);
  for (const StoredPlot& plot : run.plots) CHECK_THAT(plot.json, contains("vega-lite"));
  CHECK(run.plots[0].title == "toy: a draw against gain (mean of 2 repeats)");
  CHECK(run.plots[1].title == "toy: a draw against gain and k (mean of 2 repeats)");

  const std::vector<StoredRun> once{run};
  const std::vector<StoredRun> again{read_run(folder.path())};
  CHECK(html_report(once) == html_report(again));
  CHECK_THAT(html_comparison(once, again),
             contains("Identical to the last byte: 1 table, 2 plots"));
}

TEST_CASE("plots of a sweep have a name each, whatever table they are of", "[sweep][report]") {
  const TemporaryFolder folder("sweep-report");
  sweep(toy_plan({"k=1,2", "gain=0.25:1:*2", "tiles=16"}, 2), folder.path());
  StoredRun run = read_run(folder.path());
  REQUIRE(run.plots.size() == 2);
  REQUIRE(run.tables.size() == 1);
  run.tables.push_back(run.tables[0]);
  run.tables.push_back(run.tables[0]);
  run.tables[1].file = "second.csv";
  run.tables[2].file = "third.csv";
  run.plots.clear();
  add_sweep_plots(run);
  std::vector<std::string> names;
  std::vector<std::string> titles;
  for (const StoredPlot& plot : run.plots) {
    names.push_back(plot.name);
    titles.push_back(plot.title.substr(0, plot.title.find(':')));
  }
  CHECK(names == std::vector<std::string>{"plot1", "plot2", "plot3", "plot4", "plot5", "plot6"});
  CHECK(titles == std::vector<std::string>{"toy", "toy", "second", "second", "third", "third"});
}

TEST_CASE("sweeps join on axes and repeat, whatever their seeds", "[sweep][report]") {
  const TemporaryFolder folder("sweep-report");
  SweepPlan plan = toy_plan({"k=1,2"}, 2);
  sweep(plan, folder.path() / "a");
  plan.grid.seed = 9;
  sweep(plan, folder.path() / "b");
  const std::string html = html_comparison(std::vector<StoredRun>{read_run(folder.path() / "a")},
                                           std::vector<StoredRun>{read_run(folder.path() / "b")});
  CHECK_THAT(html, contains("toy.csv: 12 of 12 rows differ"));
  CHECK_THAT(html, contains("Rows are matched by k, repeat, tile."));
}

TEST_CASE("points that failed are the first thing said", "[sweep][report]") {
  const TemporaryFolder folder("sweep-report");
  sweep(toy_plan({"k=12:14"}), folder.path());
  const StoredRun run = read_run(folder.path());
  CHECK_THAT(run.findings.at(0), contains("3 points of toy over k: 1 failed (failures.csv), the "
                                          "first with \"k: expected any number but 13"));
}

TEST_CASE("a sweep's file that is malformed is named", "[sweep][report]") {
  const TemporaryFolder folder("sweep-report");
  sweep(toy_plan({"k=1,2"}), folder.path());
  const fs::path path = folder.path() / "sweep.json";
  const std::string whole = read_file(path);
  auto json = nlohmann::ordered_json::parse(whole);
  const auto good = json;
  json["sweep"]["axes"] = {"k=1,2", "a=1", "b=1", "c=1"};
  write_file(path, json.dump());
  CHECK_THROWS_WITH(read_run(folder.path()),
                    contains("toy.csv: expected columns after those of 4 axes"));
  json = good;
  json["schema"] = "fp8lab.sweep.0";
  write_file(path, json.dump());
  CHECK_THROWS_WITH(read_run(folder.path()), contains("schema: expected fp8lab.sweep.1"));
  std::string changed = whole;
  changed[changed.find("\"points\": 2") + 10] = '3';
  write_file(path, changed);
  CHECK_THROWS_WITH(read_run(folder.path()), contains("sweep.json: crc32: expected "));
  write_file(path, whole);
  CHECK_NOTHROW(read_run(folder.path()));
  fs::remove(path);
  CHECK_FALSE(holds_results(folder.path()));
}

}  // namespace
}  // namespace fp8lab
