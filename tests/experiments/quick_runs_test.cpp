#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/experiment.hpp"

using namespace fp8lab;

namespace {

/// The quick form, made smaller still by `changes`.
Results run(std::string_view name, const std::vector<std::string>& changes, int threads,
            std::uint64_t seed = 1) {
  const Experiment& experiment = find_experiment(name);
  RunContext context;
  context.parameters = Parameters::from_toml(experiment.default_toml, true);
  for (const std::string& change : changes) context.parameters.set(change);
  context.seed = seed;
  context.threads = threads;
  return experiment.run(context);
}

void check_equal(const Results& one, const Results& two) {
  REQUIRE(one.tables.size() == two.tables.size());
  for (std::size_t t = 0; t < one.tables.size(); ++t) {
    INFO("table " << one.tables[t].name());
    REQUIRE(one.tables[t].rows().size() == two.tables[t].rows().size());
    CHECK(!one.tables[t].rows().empty());
    for (std::size_t r = 0; r < one.tables[t].rows().size(); ++r)
      for (std::size_t c = 0; c < one.tables[t].columns().size(); ++c) {
        const std::string expected = to_csv(one.tables[t].rows()[r][c]);
        const std::string got = to_csv(two.tables[t].rows()[r][c]);
        if (expected == got) continue;
        CAPTURE(r, one.tables[t].columns()[c].name);
        REQUIRE(expected == got);
      }
  }
  CHECK(one.findings == two.findings);
}

void check_plots(const Results& results) {
  CHECK(!results.findings.empty());
  for (const Plot& plot : results.plots) {
    CAPTURE(plot.name);
    CHECK(!plot.x.label.empty());
    CHECK(!plot.y.label.empty());
    CHECK(!plot.series.empty());
    for (const Series& series : plot.series) {
      CAPTURE(series.label);
      CHECK(!series.x.empty());
      CHECK(series.x.size() == series.y.size());
    }
  }
  for (const HeatMap& map : results.heat_maps)
    CHECK(map.values.size() == map.rows.size() * map.columns.size());
}

struct Small {
  std::string name;
  std::vector<std::string> changes;
};

const std::vector<Small> kSmall{
    {"dynamic-range", {"elements=500", "scales_per_decade=2"}},
    {"outlier",
     {"elements=1024", "repeats=2", "published_repeats=1", "containment_elements=512,1024"}},
    {"format-asymmetry",
     {"tokens=64", "inputs=64", "outputs=64", "tile=32", "promotion_interval=32"}},
};

}  // namespace

TEST_CASE("experiments do not depend on threads, and do on the seed", "[experiments]") {
  for (const Small& small : kSmall) {
    CAPTURE(small.name);
    const Results one = run(small.name, small.changes, 1);
    check_equal(one, run(small.name, small.changes, 2));
    check_plots(one);
    const Results other = run(small.name, small.changes, 1, 2);
    bool differs = false;
    for (std::size_t t = 0; t < one.tables.size(); ++t)
      differs = differs || one.tables[t].csv() != other.tables[t].csv();
    CHECK(differs);
  }
}

TEST_CASE("quick forms do not depend on threads", "[experiments][slow]") {
  for (const Small& small : kSmall) {
    CAPTURE(small.name);
    check_equal(run(small.name, {}, 1), run(small.name, {}, 2));
  }
}

TEST_CASE("experiments refuse parameters that make no sense", "[experiments]") {
  CHECK_THROWS_WITH(run("dynamic-range", {"distributions=gauss"}, 1), contains("distributions"));
  CHECK_THROWS_WITH(run("dynamic-range", {"elements=0"}, 1), contains("elements"));
  CHECK_THROWS_WITH(run("outlier", {"tiles=0"}, 1), contains("tiles"));
  CHECK_THROWS_WITH(run("outlier", {"format=e9m9"}, 1), contains("e9m9"));
  CHECK_THROWS_WITH(run("format-asymmetry", {"promotion_interval=100"}, 1),
                    contains("promotion_interval"));
}
