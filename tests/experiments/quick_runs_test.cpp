#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/experiment.hpp"

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

TEST_CASE("a headline is of what a run has: tiles, formats and promotion", "[experiments]") {
  const auto headline_of = [](const std::string& name, std::vector<std::string> changes) {
    for (const Small& small : kSmall)
      if (small.name == name)
        changes.insert(changes.begin(), small.changes.begin(), small.changes.end());
    return run(name, changes, 1).headline;
  };
  // Of several tiles 128, else the first that is named; without tiles there is nothing to say.
  const std::vector<std::pair<std::string, std::string>> tiles{
      {"256,64,128,16", "128"}, {"64,16,256", "64"}, {"32", "32"}};
  for (const auto& [given, shown] : tiles) {
    INFO("tiles " << given);
    const auto outlier = headline_of("outlier", {"tiles=" + given});
    REQUIRE(outlier);
    CHECK(outlier->mitigation == "one scale per tile of " + shown);
    CHECK_THAT(outlier->sentence, contains("one scale per tile of " + shown));
  }
  CHECK_FALSE(headline_of("outlier", {"tiles=[]"}));
  // What it says is in its table: the mean and the range of the draws, at the nearest outlier.
  for (const char* policy : {"nvidia_satfinite", "flush"}) {
    const std::vector<std::string> changes{"elements=1024",
                                           "repeats=3",
                                           "published_repeats=1",
                                           "containment_elements=512",
                                           "outlier_from=1.5",
                                           "outlier_to=5.5",
                                           "outliers_per_decade=1",
                                           "product_k=[]",
                                           "containment_outlier=40000",
                                           std::string("policies=") + policy,
                                           "tiles=256,128"};
    const Results results = run("outlier", changes, 1);
    REQUIRE(results.headline);
    const Table& damage = results.tables.front();
    const auto cell = [&](const std::vector<Cell>& row, std::string_view name) {
      for (std::size_t c = 0; c < damage.columns().size(); ++c)
        if (damage.columns()[c].name == name) return to_csv(row[c]);
      throw std::out_of_range(std::string(name));
    };
    int found = 0;
    for (const auto& row : damage.rows()) {
      // 10^4.5 is nearer to 40000 than 10^5.5 and 10^3.5 are.
      if (!cell(row, "outlier").starts_with("31622.")) continue;
      const bool whole = cell(row, "scales") == "per tensor";
      if (!whole && cell(row, "tile") != "128") continue;
      const auto percent = [&](const char* name) {
        return 100.0 * std::stod(cell(row, name)) / 1023.0;
      };
      const std::string text = fmt::format("{:.3g} % ({:.3g} to {:.3g})", percent("crushed"),
                                           percent("crushed_min"), percent("crushed_max"));
      CHECK((whole ? results.headline->failing : results.headline->mitigated) == text);
      ++found;
    }
    CHECK(found == 2);
    CHECK(results.headline->failing != results.headline->mitigated);
  }
  const std::vector<std::string> ranges{"distributions=log_normal", "decades=5,7"};
  const auto with = [&](const std::string& change) {
    std::vector<std::string> changes = ranges;
    changes.push_back(change);
    return headline_of("dynamic-range", changes);
  };
  CHECK(with("plot_decades=5"));
  CHECK_FALSE(with("formats=e4m3fn"));
  CHECK_FALSE(with("formats=e5m2,bf16"));
  CHECK_FALSE(headline_of("dynamic-range", {"distributions=log_uniform", "decades=7"}));
  CHECK_THAT(with("plot_decades=5")->sentence, contains("over 5 decades"));
  CHECK(with("plot_decades=5")->failing != with("plot_decades=7")->failing);
}

TEST_CASE("accumulator-drift: without promotion there is nothing to compare", "[experiments]") {
  const std::vector<std::string> small{"k=256,128",    "distributions=uniform", "rows=2",
                                       "columns=2",    "promotion_k=[]",        "fit_repeats=2",
                                       "bf16_k=32,64", "bf16_fit_k_min=32",     "running_sum_k=256",
                                       "split_k=[]",   "published_rows=1",      "fit_k_min=128",
                                       "fit_k_max=256"};
  const auto with = [&](const std::string& promoted) {
    std::vector<std::string> changes = small;
    changes.push_back("promoted_accumulators=" + promoted);
    return run("accumulator-drift", changes, 1);
  };
  const auto speaks = [](const Results& results) {
    return std::any_of(results.findings.begin(), results.findings.end(), [](const std::string& f) {
      return f.starts_with("Promotion every 128 changes");
    });
  };
  const Results both = with("sm90.wgmma.e4m3");
  CHECK(speaks(both));
  REQUIRE(both.headline);
  CHECK(both.headline->measure == "relative L2 error of a product, K = 256");
  for (const char* other : {"[]", "sequential14.rz"}) {
    const Results none = with(other);
    INFO("promoted: " << other);
    CHECK_FALSE(speaks(none));
    CHECK_FALSE(none.headline);
  }
}
