// Repeats of measurements: what their means, spreads and tables of draws hold.

#include "common/repeats.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "catch.hpp"
#include "quick_run.hpp"
#include "seed-listings/repeats.hpp"

namespace fp8lab {
namespace {

using experiments::interval_of;
using experiments::join_repeats;

std::size_t column(const Table& table, const std::string& name) {
  for (std::size_t c = 0; c < table.columns().size(); ++c)
    if (table.columns()[c].name == name) return c;
  FAIL("no column " << name);
  return 0;
}

double real(const Table& table, std::size_t row, const std::string& name) {
  return std::get<double>(table.rows().at(row).at(column(table, name)));
}

std::string text(const Table& table, std::size_t row, const std::string& name) {
  return std::get<std::string>(table.rows().at(row).at(column(table, name)));
}

Table sample(double a, double b) {
  Table table("errors", "Errors",
              {{"format", "", "name"}, {"error", "1", "relative"}, {"k", "1", ""}});
  table.add_row({std::string("e4m3fn"), a, std::int64_t{32}});
  table.add_row({std::string("e5m2"), b, std::int64_t{64}});
  return table;
}

}  // namespace

TEST_CASE("joined repeats have means with intervals, and every draw", "[experiments][repeats]") {
  const std::vector<Table> tables{sample(1.0, 5.0), sample(2.0, 5.0), sample(6.0, 5.0)};
  const std::vector<Table> joined = join_repeats(tables, {"error"});
  REQUIRE(joined.size() == 2);
  const Table& mean = joined[0];
  CHECK(mean.name() == "errors");
  CHECK(mean.columns()[2].name == "error_spread");
  CHECK(real(mean, 0, "error") == 3.0);
  // t(2, 99.5 %) = 9.925, a standard deviation of sqrt(7), one further draw: sqrt(4 / 3).
  CHECK_THAT(real(mean, 0, "error_spread"),
             Catch::Matchers::WithinRel(9.925 * std::sqrt(7.0) * std::sqrt(4.0 / 3.0), 1e-12));
  CHECK(real(mean, 1, "error_spread") == 0.0);
  const Table& draws = joined[1];
  CHECK(draws.name() == "errors_repeats");
  REQUIRE(draws.rows().size() == 6);
  CHECK(draws.columns()[2].name == "repeat");
  CHECK(text(draws, 2, "format") == "e4m3fn");
  CHECK(real(draws, 2, "error") == 6.0);
  CHECK(std::get<std::int64_t>(draws.rows()[5][column(draws, "k")]) == 64);
}

TEST_CASE("repeats have seeds of their own, and progress that only grows",
          "[experiments][repeats]") {
  RunContext context;
  context.seed = 11;
  std::vector<double> reported;
  context.on_progress = [&](double fraction) { reported.push_back(fraction); };
  std::map<std::uint64_t, int> seeds;
  const auto all = experiments::measure_repeats(context, 4, [&](const RunContext& one) {
    ++seeds[one.seed];
    one.progress(0.5);
    one.progress(1.0);
    return one.seed;
  });
  CHECK(all.front() == 11);
  CHECK(seeds.size() == 4);
  CHECK(reported == std::vector<double>{0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0});
}

TEST_CASE("intervals of logarithms and medians", "[experiments][repeats]") {
  const std::vector<double> powers{1.0, 10.0, 100.0};
  const double half_width =
      interval_of(std::vector<double>{0.0, std::log(10.0), std::log(100.0)}).half_width;
  CHECK(experiments::log_interval_text(powers) ==
        fmt::format("10 [{:.3g}, {:.3g}]", std::exp(std::log(10.0) - half_width),
                    std::exp(std::log(10.0) + half_width)));
  CHECK(experiments::log_interval_text(std::vector<double>{1.0, 2.0, 4.0}, 10.0, 100.0) ==
        "20 [0.0071, 100]");
  CHECK(experiments::log_interval_text(std::vector<double>{0.0, 0.0}) == "0 ± 0");
  CHECK(experiments::log_interval_text(std::vector<double>{0.5}, 100.0) == "50");
  std::vector<double> ranks;
  for (int i = 100; i > 0; --i) ranks.push_back(i);
  // 50 -+ (2.58 + 1.28) * 5: ranks 30 and 70 of 0 to 99.
  CHECK(experiments::median_text(ranks) == "50.5 [31, 71]");
}

TEST_CASE("experiments that repeat keep the draws of their means", "[experiments][repeats]") {
  struct Case {
    const char* experiment;
    const char* table;
    const char* figure;
    std::vector<std::string> assignments;
  };
  const std::vector<Case> cases{
      {"recipes",
       "recipes",
       "relative_l2",
       {"rows=128", "columns=128", "read_rows=128", "read_columns=128"}},
      {"int8-vs-fp8", "published", "int8_mse", {"elements=200", "published_elements=200"}},
      {"inference-linear",
       "inference",
       "relative_l2",
       {"tokens=4", "inputs=128", "outputs=8", "calibration_batches=1"}},
      {"delayed-dynamics", "dynamics", "overflowing_steps", {"steps=40", "elements=16"}},
      {"fp8-allreduce",
       "reduction",
       "relative_l2",
       {"elements=32", "ranks=2", "gather_elements=32", "gather_ranks=2", "desync_ranks=2"}},
      {"adam-states",
       "runs",
       "loss",
       {"elements=16", "steps=10", "stagnation_steps=5", "presets=fp32"}}};
  for (const Case& c : cases) {
    CAPTURE(c.experiment);
    const Results results = run_quick(c.experiment, 2, c.assignments);
    const Table& mean = table_named(results, c.table);
    const Table& draws = table_named(results, std::string(c.table) + "_repeats");
    const std::size_t repeats = draws.rows().size() / mean.rows().size();
    REQUIRE(repeats >= 4);
    bool spreads = false;
    for (std::size_t row = 0; row < mean.rows().size(); ++row) {
      std::vector<double> values;
      for (std::size_t i = 0; i < repeats; ++i)
        values.push_back(real(draws, row * repeats + i, c.figure));
      const auto interval = interval_of(values);
      CHECK(real(mean, row, c.figure) == interval.mean);
      CHECK(real(mean, row, std::string(c.figure) + "_spread") == interval.half_width);
      spreads = spreads || interval.half_width > 0.0;
    }
    CHECK(spreads);
  }
}

TEST_CASE("int8-vs-fp8: a format that is best in one draw of several is named", "[experiments]") {
  const Results r = run_quick("int8-vs-fp8", 1, {"elements=80", "published_elements=200"});
  REQUIRE(r.findings.size() >= 3);
  CHECK(!contains(" draws ").match(r.findings[0]));
  CHECK_THAT(r.findings[1], contains("(in 1 of 5 draws 2E5M)"));
  CHECK_THAT(r.findings[2], contains("(in 2 of 5 draws INT8)"));
}

TEST_CASE("long-sums: the accumulator alone harms sums of one sign, and promotion mends it",
          "[experiments][train][long]") {
  const Results results = run_quick("long-sums", 2);
  const Table& runs = table_named(results, "runs");
  for (std::size_t row = 0; row < runs.rows().size(); ++row) {
    const std::string task = text(runs, row, "task");
    const bool harmed = task == "values around 10" && text(runs, row, "way") == "no promotion";
    CAPTURE(task, text(runs, row, "way"), real(runs, row, "ratio"));
    if (task == "values around 10") {
      CHECK(text(runs, row, "standing") == (harmed ? "leaves" : "follows"));
      CHECK((real(runs, row, "ratio_min") > 1.02) == harmed);
    }
    if (task == "16 classes") CHECK(text(runs, row, "standing") == "follows");
  }
}

}  // namespace fp8lab
