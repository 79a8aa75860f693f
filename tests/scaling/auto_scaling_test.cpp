#include "fp8lab/scaling/auto_scaling.hpp"

#include <cmath>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("auto-scaling: the paper's mu doubles in 1000 clean steps and halves at once",
          "[scaling]") {
  AutoScaler scaler(auto_scaling_options(AutoScaling::as_paper));
  for (int step = 0; step < 1000; ++step) scaler.update(1e-5);  // at the threshold is clean
  CHECK(std::abs(scaler.mu() - 2.0) < 1e-12);
  scaler.update(1.1e-5);
  CHECK(std::abs(scaler.mu() - 1.0) < 1e-12);
  scaler.update(0.0);
  CHECK(scaler.mu() > 1.0);
}

TEST_CASE("auto-scaling: the summary's mu waits 1000 clean steps, then never stops", "[scaling]") {
  AutoScaler scaler(auto_scaling_options(AutoScaling::as_seed));
  for (int step = 0; step < 999; ++step) scaler.update(1e-3);
  CHECK(scaler.mu() == 1.0);
  scaler.update(1e-3);
  CHECK(scaler.mu() == std::exp2(1e-3));
  scaler.update(0.5);
  CHECK(scaler.mu() == std::exp2(1e-3) / 2.0);
  for (int step = 0; step < 999; ++step) scaler.update(0.0);
  CHECK(scaler.mu() == std::exp2(1e-3) / 2.0);  // the count started anew
  for (int step = 0; step < 2'000'000; ++step) scaler.update(0.0);
  CHECK(std::isinf(scaler.mu()));
}

TEST_CASE("auto-scaling: laws of growth differ between two doublings and start anew at a halving",
          "[scaling]") {
  const auto after = [](GrowthLaw law, int steps, bool halve) {
    AutoScaler scaler({.threshold = 0.0, .steps_to_double = 8, .growth = law}, 4.0);
    for (int step = 0; step < steps; ++step) scaler.update(0.0);
    if (halve) scaler.update(0.5);
    if (halve) scaler.update(0.0);
    return scaler.mu();
  };
  CHECK(std::abs(after(GrowthLaw::exponential, 4, false) - 4.0 * std::sqrt(2.0)) < 1e-12);
  CHECK(after(GrowthLaw::linear, 4, false) == 6.0);
  CHECK(after(GrowthLaw::linear, 16, false) == 12.0);
  CHECK(after(GrowthLaw::linear, 4, true) == 3.375);  // 3, and an eighth of it
  CHECK(after(GrowthLaw::doubling, 7, false) == 4.0);
  CHECK(after(GrowthLaw::doubling, 8, false) == 8.0);
  CHECK(after(GrowthLaw::doubling, 7, true) == 2.0);
  CHECK(after(GrowthLaw::none, 100, false) == 4.0);
  CHECK(find_growth_law(to_string(GrowthLaw::doubling)) == GrowthLaw::doubling);
  CHECK_THROWS_WITH(find_growth_law("cubic"), contains("exponential, linear, doubling or none"));
}

TEST_CASE("auto-scaling: a doubling may take a single step", "[scaling]") {
  for (const GrowthLaw law : {GrowthLaw::exponential, GrowthLaw::linear, GrowthLaw::doubling}) {
    INFO(to_string(law));
    AutoScaler scaler({.threshold = 0.0, .steps_to_double = 1, .clean_steps = 2, .growth = law});
    scaler.update(0.0);
    CHECK(scaler.mu() == 1.0);
    scaler.update(0.0);
    CHECK(scaler.mu() == 2.0);
    scaler.update(0x1p-60);
    CHECK(scaler.mu() == 1.0);
  }
}

TEST_CASE("auto-scaling: a state goes on elsewhere with the same bits", "[scaling]") {
  for (const GrowthLaw law : {GrowthLaw::exponential, GrowthLaw::linear, GrowthLaw::doubling}) {
    const AutoScalingOptions options{
        .threshold = 0.25, .steps_to_double = 3, .clean_steps = 2, .growth = law};
    AutoScaler scaler(options, 4.0);
    for (int step = 0; step < 40; ++step) {
      AutoScaler other(options);
      other.set_state(scaler.state());
      const double share = step % 17 == 16 ? 0.5 : 0.25;
      scaler.update(share);
      other.update(share);
      INFO(to_string(law) << " step " << step);
      CHECK(other.mu() == scaler.mu());
      CHECK(other.state().base == scaler.state().base);
      CHECK(other.state().clean == scaler.state().clean);
      CHECK(other.state().counted == scaler.state().counted);
    }
  }
  AutoScaler scaler({});
  const auto refused = [&](const AutoScaler::State& state, const char* what) {
    CHECK_THROWS_WITH(scaler.set_state(state), contains(what));
  };
  refused({.mu = 0.0}, "mu: expected above 0, got 0 and 1");
  refused({.base = 0.0}, "mu: expected above 0, got 1 and 0");
  refused({.mu = std::nan("")}, "mu: expected above 0");
  refused({.clean = -1}, "clean steps: expected at least 0, got -1 and 0");
  refused({.counted = -1}, "clean steps: expected at least 0, got 0 and -1");
  scaler.set_state({.mu = 0.5, .base = 0.25, .clean = 0, .counted = 0});
  CHECK(scaler.mu() == 0.5);
}

TEST_CASE("auto-scaling: as shipped, ranks share the headroom", "[scaling]") {
  const ShippedScaling s = shipped_scaling(1.0F, 16);
  CHECK(s.scale == 64.0F);  // 256 / sqrt(16)
  CHECK(s.inverse_scale == 1.0F / 64.0F / 16.0F);
  for (std::int64_t ranks = 1; ranks <= 70; ++ranks) {
    INFO(ranks << " ranks");
    const ShippedScaling of = shipped_scaling(3.0F, ranks);  // 128 for one
    const auto share = static_cast<float>(1.0 / std::sqrt(static_cast<double>(ranks)));
    CHECK(of.scale == 128.0F * share);
    CHECK(of.inverse_scale == 1.0F / (128.0F * share) / static_cast<float>(ranks));
  }
  CHECK(shipped_scaling(0.0F, 4, 8.0F).scale == 4.0F);
  CHECK(shipped_scaling(std::nanf(""), 4, 8.0F).scale == 4.0F);
  CHECK(shipped_scaling(INFINITY, 4, 8.0F).scale == 4.0F);
}

TEST_CASE("auto-scaling: bad arguments are named", "[scaling]") {
  CHECK_THROWS_WITH(AutoScaler({.threshold = -0.1}), contains("threshold"));
  CHECK_THROWS_WITH(AutoScaler({.threshold = 1.5}), contains("threshold"));
  CHECK(AutoScaler({.threshold = 1.0}).mu() == 1.0);
  CHECK_THROWS_WITH(AutoScaler({.steps_to_double = 0}), contains("steps_to_double"));
  CHECK_THROWS_WITH(AutoScaler({.clean_steps = -1}), contains("clean_steps"));
  CHECK_THROWS_WITH(AutoScaler({}, 0.0), contains("mu"));
  CHECK_THROWS_WITH(AutoScaler({}).update(std::nan("")), contains("saturated_share"));
  CHECK_THROWS_WITH(auto_scaling_options(AutoScaling::as_shipped), contains("no mu"));
  CHECK_THROWS_WITH(shipped_scaling(1.0F, 0), contains("ranks"));
  CHECK_THROWS_WITH(find_auto_scaling("paper"), contains("as_paper"));
}
