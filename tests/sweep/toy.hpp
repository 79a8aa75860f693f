#pragma once
// An experiment that costs nothing, so that tests see the sweep alone.

#include "fp8lab/core/error.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/sweep/sweep.hpp"

namespace fp8lab {

inline constexpr const char* kToyToml = R"(question = "?"
k = 4
gain = 0.5
tiles = [16, 32, 64]
rule = "floor"
[quick]
k = 2
)";

/// One row a tile, and an error at k = 13.
inline Results toy(const RunContext& context) {
  const Parameters& p = context.parameters;
  require(p.integer("k") != 13, "k", "any number but 13", "13");
  Table table("toy", "A toy", {{"tile", "1", "tile"}, {"draw", "1", "a draw"}, {"rule", "", "r"}});
  for (const std::int64_t tile : p.integers("tiles"))
    table.add_row({tile, p.real("gain") * context.random("draw").uniform(0), p.text("rule")});
  Results results;
  results.tables.push_back(std::move(table));
  return results;
}

inline const Experiment kToy{"toy", kToyToml, toy};

inline const Experiment& find_toy(std::string_view) { return kToy; }

/// A grid over the toy.
inline SweepPlan toy_plan(const std::vector<std::string>& axes, std::int64_t repeats = 1) {
  SweepPlan plan;
  plan.experiment = &kToy;
  plan.grid.experiment = "toy";
  plan.grid.base = Parameters::from_toml(kToyToml, false);
  for (const std::string& axis : axes) plan.grid.axes.push_back(parse_axis(axis, plan.grid.base));
  plan.grid.repeats = repeats;
  return plan;
}

inline PointRunner on_threads(int threads) {
  return [threads](const SweepPlan& plan, SweepLog& log, const OnSweepProgress& call) {
    run_points_in_processes(plan, log, {threads, 0.0}, call);
  };
}

}  // namespace fp8lab
