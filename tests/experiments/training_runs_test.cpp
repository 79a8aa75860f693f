#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "claims/claim.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "leading-indicators/indicators.hpp"
#include "optimizer-precision/rows.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const std::vector<std::string> kSmall{"width=32",      "hidden=32", "length=16",
                                      "vocabulary=64", "steps=8",   "warmup=2"};

std::vector<std::string> small(std::vector<std::string> changes) {
  changes.insert(changes.begin(), kSmall.begin(), kSmall.end());
  return changes;
}

double real(const Table& table, std::size_t row, const std::string& column) {
  for (std::size_t c = 0; c < table.columns().size(); ++c)
    if (table.columns()[c].name == column) return std::get<double>(table.rows()[row][c]);
  throw std::out_of_range(column);
}

/// A shadow that never changes.
constexpr StepFigures kShadow{3.0, 1e-3, 1e-6};

std::vector<StepFigures> level(const StepFigures& figures, std::size_t steps) {
  return std::vector<StepFigures>(steps, figures);
}

}  // namespace

TEST_CASE("experiments that train give the same bits for any thread count",
          "[experiments][train]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs{
      {"optimizer-precision", small({"rows=bf16,fp8-lm,fp8-lm-fp8-v-unscaled"})},
      {"leading-indicators",
       small({"runs=te-current,bf16@fp8-lm", "window=2", "snapshot_every=[0, 2]"})},
      {"data-parallel", small({"workers=[3]", "wires=f32,e5m2", "scalings=post,auto"})}};
  for (const auto& [name, changes] : runs) {
    INFO(name);
    const Results one = run_quick(name, 1, changes);
    CHECK(all_csv(one) == all_csv(run_quick(name, 3, changes)));
    CHECK(!one.findings.empty());
    CHECK(!one.plots.empty());
  }
}

TEST_CASE("experiments that train refuse what they do not know", "[experiments][train]") {
  CHECK_THROWS_WITH(run_quick("optimizer-precision", 1, {"rows=adam"}), contains("'adam'"));
  CHECK_THROWS_WITH(run_quick("leading-indicators", 1, {"runs=te-curent"}),
                    contains("'te-curent'"));
  CHECK_THROWS_WITH(run_quick("leading-indicators", 1, {"fault_at=1.0"}), contains("fault_at"));
  CHECK_THROWS_WITH(run_quick("leading-indicators", 1, {"amax_ratio=0.5"}), contains("amax_ratio"));
  CHECK_THROWS_WITH(run_quick("data-parallel", 1, {"scalings=sideways"}), contains("'sideways'"));
  CHECK_THROWS_WITH(run_quick("data-parallel", 1, {"wires=e4m3fn"}), contains("f32"));
  CHECK_THROWS_WITH(run_quick("data-parallel", 1, {"workers=[0]"}), contains("workers"));
}

TEST_CASE("optimizer rows: formats of the preset, scales or none", "[experiments][train]") {
  const OptimizerRow scaled = find_optimizer_row("fp8-lm-fp8-v");
  CHECK(scaled.states.v == StateFormat{FormatId::e4m3fn, StateScaling::tensor});
  CHECK(scaled.scaled);
  const OptimizerRow plain = find_optimizer_row("coat-unscaled");
  CHECK(plain.states.v == StateFormat{FormatId::e4m3fn, StateScaling::none, ScaleRule::te});
  CHECK_FALSE(plain.scaled);
  CHECK(find_optimizer_row("fp32").variant.recipe.name == "fp32");
}

TEST_CASE("kill switch: each indicator alarms by itself, a shadow by its side does not",
          "[experiments][train]") {
  const KillThresholds t;  // factors of 2, 0.01 nats, windows of 10, 5 in a row
  const auto shadow = level(kShadow, 30);
  const WatchedRun same = watch(t, shadow, shadow);
  for (const auto& alarm : same.alarms) CHECK_FALSE(alarm.has_value());
  CHECK_FALSE(same.left.has_value());

  const std::vector<StepFigures> off{{3.0, 2.1e-3, 1e-6}, {3.0, 1e-3, 0.4e-6}, {3.02, 1e-3, 1e-6}};
  for (std::size_t i = 0; i < off.size(); ++i) {
    const WatchedRun watched = watch(t, level(off[i], 30), shadow);
    for (std::size_t k = 0; k < off.size(); ++k) {
      INFO("run " << i << ", indicator " << k);
      CHECK(watched.alarms[k].has_value() == (i == k));
    }
    // The window is full at step 9, five in a row are at step 13.
    CHECK(watched.alarms[i] == 13);
    CHECK_FALSE(watched.left.has_value());
  }
  const WatchedRun below = watch(t, level({3.0, 1.9e-3, 0.6e-6}, 30), shadow);
  CHECK_FALSE(below.alarms[0].has_value());
  CHECK_FALSE(below.alarms[1].has_value());
}

TEST_CASE("kill switch: each threshold is refused from its limit on, and named",
          "[experiments][train]") {
  const auto refused = [](const KillThresholds& t, const std::string& part) {
    CHECK_THROWS_WITH(KillSwitch(t), contains(part));
  };
  refused({.amax_ratio = 1.0}, "amax_ratio: expected above 1, got 1");
  refused({.moment_ratio = 1.0}, "moment_ratio: expected above 1, got 1");
  refused({.loss_gap = -0.001}, "loss_gap: expected at least 0, got -0.001");
  refused({.window = 0}, "window: expected at least 1, got 0");
  refused({.patience = 0}, "patience: expected at least 1, got 0");
  CHECK_NOTHROW(KillSwitch(
      {.amax_ratio = 1.001, .moment_ratio = 1.001, .loss_gap = 0.0, .window = 1, .patience = 1}));
}

TEST_CASE("kill switch: where the loss leaves", "[experiments][train]") {
  const KillThresholds t{.window = 2};
  const auto shadow = level(kShadow, 20);
  std::vector<StepFigures> run = shadow;
  for (const std::size_t bump : {3U, 4U, 5U}) run[bump].loss = 4.0;
  CHECK_FALSE(watch(t, run, shadow).left.has_value());  // it came back
  for (std::size_t i = 12; i < run.size(); ++i) run[i].loss = 3.5;
  CHECK(watch(t, run, shadow).left == 12);
  run = level(kShadow, 8);
  CHECK(watch(t, run, shadow).left == 8);  // it broke off
  KillSwitch kill(t);
  for (const StepFigures& step : shadow) kill.observe({std::nan(""), 0.0, 1e-6}, step);
  CHECK(kill.tripped() == 5);
}

TEST_CASE("kill switch: the first alarm of any ends the run, in whatever order they come",
          "[experiments][train]") {
  const KillThresholds t{.window = 1, .patience = 1};
  constexpr std::int64_t kNever = 100;
  const auto seen = [](std::int64_t at) {
    return at == kNever ? std::optional<std::int64_t>() : at;
  };
  // Each indicator raises its alarm at one of four steps, or never.
  for (const std::int64_t amax : {2L, 3L, 7L, kNever})
    for (const std::int64_t moment : {2L, 5L, 7L, kNever})
      for (const std::int64_t loss : {1L, 3L, 8L, kNever}) {
        CAPTURE(amax, moment, loss);
        KillSwitch kill(t);
        CHECK_FALSE(kill.tripped().has_value());
        for (std::int64_t step = 0; step < 10; ++step) {
          StepFigures figures = kShadow;
          if (step == amax) figures.gradient_amax *= 2.5;
          if (step == moment) figures.second_moment *= 0.3;
          if (step == loss) figures.loss += 0.1;
          kill.observe(figures, kShadow);
          const std::int64_t first = std::min({amax, moment, loss});
          CHECK(kill.tripped() == seen(first <= step ? first : kNever));
        }
        CHECK(kill.alarm(Indicator::gradient_amax) == seen(amax));
        CHECK(kill.alarm(Indicator::second_moment) == seen(moment));
        CHECK(kill.alarm(Indicator::loss_gap) == seen(loss));
      }
}

TEST_CASE("data-parallel: scales behave as they are meant to", "[experiments][train]") {
  const Table runs = table_named(
      run_quick("data-parallel", 2,
                small({"workers=[8]", "wires=f32,e4m3fn", "scalings=pre,post,auto,shipped"})),
      "runs");
  REQUIRE(runs.rows().size() == 5);
  CHECK(real(runs, 0, "gap") == 0.0);
  CHECK(real(runs, 0, "sqnr") > 100.0);
  CHECK(real(runs, 1, "saturated") < 0.01);  // no sum passes max finite
  CHECK(real(runs, 2, "saturated") > real(runs, 1, "saturated"));
  CHECK(real(runs, 3, "smallest_mu") < 1.0);
  CHECK(real(runs, 2, "sqnr") < real(runs, 1, "sqnr"));
  CHECK(real(runs, 4, "sqnr") > 15.0);
  // A quarter of the bytes, but for the rounding of a product by 1e-3.
  CHECK(std::abs(real(runs, 0, "traffic") / real(runs, 1, "traffic") - 4.0) < 1e-9);
}

TEST_CASE("claims about training stay as measured for another seed", "[experiments][slow]") {
  using enum Verdict;
  // T3 and T7 hang on single runs of the seeds.
  const std::vector<std::pair<const char*, Verdict>> expected{
      {"A5", holds_with_correction}, {"T1", cannot_tell}, {"T2", cannot_tell}, {"T4", holds},
      {"T5", cannot_tell},           {"T6", holds}};
  const auto seed = GENERATE(std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3});
  for (const auto& [id, verdict] : expected) {
    const Measurement measured = measure(find_claim(id), {.seed = seed, .threads = 2});
    INFO(id << ", seed " << seed << ": " << measured.figure);
    CHECK(to_string(measured.verdict) == to_string(verdict));
  }
}
