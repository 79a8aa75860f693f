// Curves of several seeds, and room that a scale's rounding does not make.

#include "train/curves.hpp"

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "delayed-dynamics/dynamics.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

TEST_CASE("a curve is the mean over seeds, its band what they span, its gap paired",
          "[experiments]") {
  const std::vector<std::vector<double>> references{{3.0, 2.0}, {5.0, 4.0}};
  const std::vector<std::vector<double>> runs{{3.5, 2.0}, {5.1, 4.4}};
  const Series loss = loss_band("a", runs);
  CHECK(loss.x == std::vector<double>{0.5, 1.5});
  CHECK(std::abs(loss.y[0] - 4.3) < 1e-12);
  CHECK(loss.low == std::vector<double>{3.5, 2.0});
  CHECK(loss.high == std::vector<double>{5.1, 4.4});
  const Series gap = gap_band("a", runs, references);
  CHECK(std::abs(gap.y[0] - 0.3) < 1e-12);
  CHECK(std::abs(gap.low[0] - 0.1) < 1e-12);
  CHECK(std::abs(gap.high[0] - 0.5) < 1e-12);
  CHECK(std::abs(gap.high[1] - 0.4) < 1e-12);
  // One seed has no band, and a run that broke off leaves a hole.
  CHECK(loss_band("a", {runs[0]}).low.empty());
  const Series broken = loss_band("a", {{3.5, std::nan("")}, {5.1, 4.4}});
  CHECK(std::isfinite(broken.y[0]));
  CHECK(std::isnan(broken.y[1]));
  CHECK(std::isnan(broken.low[1]));
}

TEST_CASE("delayed-dynamics: current scaling leaves no room, whatever its scale rounds to",
          "[experiments]") {
  std::vector<float> trace;
  for (int i = 1; i <= 200; ++i) trace.push_back(0.013F * static_cast<float>(i));
  for (const StepLoss& step :
       run_trace({.current = true, .delayed = {}}, format(FormatId::e4m3fn), trace, {1.0F}))
    CHECK(step.wasted_octaves == 0.0);
  // Half an octave is room.
  trace = {std::sqrt(2.0F), 1.0F, 1.0F};
  const auto losses = run_trace({false, {.history = 4}}, format(FormatId::e4m3fn), trace, {1.0F});
  CHECK(std::abs(losses[2].wasted_octaves - 0.5) < 1e-6);
}
