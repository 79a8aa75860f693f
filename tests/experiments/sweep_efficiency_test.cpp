#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "sweep-efficiency/dealing.hpp"
#include "sweep-efficiency/point_costs.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

/// A dealer that costs nothing, but for its looks.
Dealing free_dealing(std::int64_t ranks, std::int64_t in_hand = 2) {
  return {.ranks = ranks, .in_hand = in_hand, .pause = 1e-9};
}

double sum(const std::vector<double>& costs) {
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

}  // namespace

TEST_CASE("dealing: runs that can be worked out by hand", "[experiments][sweep]") {
  // Rank 1 has points 0 and 1, rank 0 runs 2; when both answer, the dealer takes rank 1's result
  // first and gives it point 3, behind point 1 in its hand.
  const DealingOutcome even = deal_points(free_dealing(2), std::vector<double>(4, 1.0));
  CHECK(std::abs(even.makespan - 3.0) < 1e-6);
  CHECK(std::abs(even.drain - 2.0) < 1e-6);
  CHECK(even.run_twice == 0);
  // Both points in hand: rank 0 has nothing to do, and does not take the second one.
  CHECK(std::abs(deal_points(free_dealing(2), std::vector<double>{0.3, 0.3}).makespan - 0.6) <
        1e-6);
  CHECK(std::abs(deal_points(free_dealing(2, 1), std::vector<double>{0.3, 0.3}).makespan - 0.3) <
        1e-6);
  // One rank: every point and its result, one after the other.
  Dealing alone = free_dealing(1);
  alone.service = 0.25;
  const DealingOutcome served = deal_points(alone, std::vector<double>(8, 1.0));
  CHECK(std::abs(served.makespan - 10.0) < 1e-6);
  CHECK(std::abs(served.dealer_busy - 2.0) < 1e-12);
}

TEST_CASE("dealing: a look at the very moment of an arrival, and of the end of patience, sees it",
          "[experiments][sweep]") {
  const Dealing dealing{.ranks = 2, .in_hand = 1, .pause = 0.25};
  CHECK(deal_points(dealing, std::vector<double>{1.0}).makespan == 1.0);
  CHECK(deal_points(dealing, std::vector<double>{0.625}).makespan == 0.75);
  // Rank 0's own point took a second, so that rank 1 is overdue from the third one on.
  const DealingOutcome overdue = deal_points(dealing, std::vector<double>{8.0, 1.0});
  CHECK(overdue.run_twice == 1);
  CHECK(overdue.makespan == 11.0);
  CHECK(overdue.drain == 11.0);
}

TEST_CASE("dealing: a rank owes its other points when one of them ran twice",
          "[experiments][sweep]") {
  // Points take five seconds to rank 1 and back. The dealer, which waits twice its longest point
  // and a second, runs the first one from 1 to 2 and the second one from 3 to 53; rank 1's second
  // result would be there at 61.
  const Dealing dealing{.ranks = 2, .in_hand = 2, .latency = 5.0, .pause = 0.25};
  const DealingOutcome outcome = deal_points(dealing, std::vector<double>{1.0, 50.0});
  CHECK(outcome.run_twice == 2);
  CHECK(outcome.makespan == 53.0);
}

TEST_CASE("dealing: a dealer that cannot keep up serves all the time", "[experiments][sweep]") {
  Dealing dealing{.ranks = 200, .in_hand = 2, .service = 1e-3, .deal = 1e-6, .latency = 1e-6};
  const std::vector<double> costs(20000, 0.02);  // 10000 results a second, the dealer takes 1000
  const DealingOutcome outcome = deal_points(dealing, costs);
  CHECK(std::abs(outcome.makespan - 20.0) < 0.01 * 20.0);
  CHECK(outcome.dealer_busy > 0.99 * outcome.makespan);
  dealing.ranks = 10;  // 500 a second
  CHECK(deal_points(dealing, costs).dealer_busy < 0.55 * deal_points(dealing, costs).makespan);
}

TEST_CASE("dealing: between its bounds, whatever the costs", "[experiments][sweep]") {
  for (const CostShape shape : {CostShape::constant, CostShape::log_normal, CostShape::pareto})
    for (const std::int64_t ranks : {1, 2, 3, 17, 400})
      for (const std::int64_t in_hand : {1, 2, 5}) {
        CAPTURE(static_cast<int>(shape), ranks, in_hand);
        const std::vector<double> costs = draw_costs({3, "bounds"}, {.shape = shape}, 0.05, 2000);
        const Dealing dealing{ranks, in_hand, 1e-5, 1e-6, 1e-6, 1e-5};
        const DealingOutcome outcome = deal_points(dealing, costs);
        CHECK(outcome.makespan >= shortest_makespan(dealing, costs));
        // Until the last point is dealt nobody is idle for long; then each has some in hand.
        const double longest = *std::max_element(costs.begin(), costs.end());
        const double overhead = 2000.0 * 1e-5 + 2000.0 / static_cast<double>(ranks) * 1e-3;
        if (outcome.run_twice == 0)
          CHECK(outcome.makespan <= sum(costs) / static_cast<double>(ranks) +
                                        static_cast<double>(in_hand) * longest + overhead);
      }
}

TEST_CASE("dealing: the end waits for a point that ran twice", "[experiments][sweep]") {
  std::vector<double> costs(40, 0.01);
  costs[21] = 10.0;
  // Rank 1 is silent for more than a second and twice the longest answer: rank 0 starts the
  // point again, and is not done when rank 1 is.
  const DealingOutcome outcome = deal_points(free_dealing(2), costs);
  CHECK(outcome.run_twice == 1);
  CHECK(outcome.makespan > 11.0);
  CHECK(outcome.makespan < 11.5);
}

TEST_CASE("dealing: each silent rank's point runs again, one after the other",
          "[experiments][sweep]") {
  // Rank i holds one point of 3 * 8^i seconds. Rank 0 has nothing else to do: it starts the point
  // of the rank that has been silent longest once its own last point is done and twice the longest
  // answer and a second are over.
  std::vector<double> costs;
  double began = 0.0;
  double ended = 0.0;
  double longest = 0.0;
  for (std::int64_t silent = 1; silent <= 5; ++silent) {
    CAPTURE(silent);
    costs.push_back(costs.empty() ? 3.0 : 8.0 * costs.back());
    began = std::max(ended, 2.0 * longest + 1.0);
    ended = began + costs.back();
    longest = costs.back();
    const DealingOutcome outcome = deal_points(free_dealing(silent + 1, 1), costs);
    CHECK(outcome.run_twice == silent);
    CHECK(std::abs(outcome.makespan - ended) < 1e-3);
    CHECK(outcome.drain <= outcome.makespan);
  }
}

TEST_CASE("dealing: patience grows with the longest answer, not with the run",
          "[experiments][sweep]") {
  // The run is 20 s old when rank 1 falls silent for 30: a second and twice an answer are enough.
  std::vector<double> costs(4000, 0.01);
  costs[3981] = 30.0;
  const DealingOutcome outcome = deal_points(free_dealing(2), costs);
  CHECK(outcome.run_twice == 1);
  CHECK(outcome.makespan > 50.9);
  CHECK(outcome.makespan < 51.5);
}

TEST_CASE("dealing: a point in hand hides the dealer's service", "[experiments][sweep]") {
  Dealing dealing{.ranks = 4, .in_hand = 1, .service = 1e-3, .deal = 1e-6, .latency = 1e-6};
  const std::vector<double> costs = draw_costs(
      {4, "in hand"}, {.shape = CostShape::log_normal, .log_normal_sigma = 0.2}, 0.01, 20000);
  const double one = deal_points(dealing, costs).makespan;
  dealing.in_hand = 2;
  const double two = deal_points(dealing, costs).makespan;
  // A rank then waits until its result is taken, and not until it has been served too. Rank 0's
  // own worker has no second point either way.
  const double served = 20000.0 / 4.0 * 1e-3;
  CHECK(one - two > 0.5 * served);
  CHECK(one - two < 1.5 * served);
}

TEST_CASE("costs of points have their mean and shape", "[experiments][sweep]") {
  for (const CostShape shape : {CostShape::constant, CostShape::log_normal, CostShape::pareto}) {
    const std::vector<double> costs =
        draw_costs({5, "costs"}, {.shape = shape, .pareto_alpha = 4.0}, 2.0, 200000);
    CHECK(std::abs(sum(costs) / 200000.0 - 2.0) < 0.02 * 2.0);
    const auto above = std::count_if(costs.begin(), costs.end(), [](double c) { return c > 6.0; });
    // P(cost > 3 means): log-normal, sigma 1: Q(ln 3 + 1/2); Pareto, alpha 4: (3/4 / 3)^4.
    const double expected = shape == CostShape::constant ? 0.0
                            : shape == CostShape::log_normal
                                ? 0.5 * std::erfc(1.5986 / std::sqrt(2.0))
                                : std::pow(0.25, 4.0);
    CHECK(std::abs(static_cast<double>(above) / 200000.0 - expected) < 0.002);
  }
}

TEST_CASE("sweep-efficiency: quick form, threads, parameters", "[experiments][sweep]") {
  const std::vector<std::string> small{"points=2000", "ranks=1,20,500"};
  const Results one = run_quick("sweep-efficiency", 1, small);
  const Results two = run_quick("sweep-efficiency", 2, small);
  CHECK(all_csv(one) == all_csv(two));
  CHECK(one.findings == two.findings);
  CHECK(one.plots.size() == 3);
  CHECK(table_named(one, "efficiency").rows().size() == 3 * 2 * 3);
  CHECK_THROWS_WITH(run_quick("sweep-efficiency", 1, {"ranks=0"}), contains("ranks"));
  CHECK_THROWS_WITH(run_quick("sweep-efficiency", 1, {"in_hand=0"}), contains("in_hand"));
  CHECK_THROWS_WITH(run_quick("sweep-efficiency", 1, {"pareto_alpha=1.0"}),
                    contains("pareto_alpha: expected a finite number in (1, 1000], got 1.0"));
  CHECK_THROWS_WITH(run_quick("sweep-efficiency", 1, {"distributions=gaussian"}),
                    contains("gaussian"));
  CHECK_THROWS_WITH(run_quick("sweep-efficiency", 1, {"service_seconds=-1.0"}),
                    contains("service_seconds"));
}
