#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "sweep-efficiency/dealing.hpp"
#include "sweep-efficiency/point_costs.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::int64_t kMaxRanks = 1'000'000;
constexpr std::int64_t kToolsInHand = 2;

double seconds(const Parameters& p, std::string_view key, double least) {
  const double value = p.real(key);
  require(value >= least, key, fmt::format("at least {:g} seconds", least),
          fmt::format("{:g}", value));
  return value;
}

struct Point {
  std::string distribution;
  double mean = 0.0;
  Dealing dealing;
  double work = 0.0;      ///< seconds of all points together
  double shortest = 0.0;  ///< makespan
  DealingOutcome outcome;
};

/// The points of one distribution and mean, costs drawn once for all of them.
struct Sweep {
  std::string distribution;
  double mean = 0.0;
  std::vector<double> costs;
  double work = 0.0;
};

std::vector<Sweep> draw_sweeps(const RunContext& context) {
  const Parameters& p = context.parameters;
  const auto count = static_cast<std::int64_t>(positive(p, "points"));
  const double alpha = p.real("pareto_alpha");
  require(alpha > 1.0, "pareto_alpha", "above 1, for a finite mean", fmt::format("{:g}", alpha));
  const double sigma = p.real("log_normal_sigma");
  require(sigma >= 0.0, "log_normal_sigma", "at least 0", fmt::format("{:g}", sigma));
  std::vector<Sweep> sweeps;
  for (const std::string& name : p.texts("distributions"))
    for (const double mean : p.reals("mean_seconds")) {
      require(mean > 0.0, "mean_seconds", "numbers above 0", fmt::format("{:g}", mean));
      Sweep sweep{name, mean, {}, 0.0};
      sweep.costs = draw_costs(context.random("sweep-efficiency/" + name),
                               {find_cost_shape(name), sigma, alpha}, mean, count);
      PairwiseSum work;
      for (const double cost : sweep.costs) work.add(cost);
      sweep.work = work.total();
      sweeps.push_back(std::move(sweep));
    }
  return sweeps;
}

std::vector<Dealing> read_dealings(const Parameters& p) {
  Dealing dealing;
  dealing.service = seconds(p, "service_seconds", 0.0);
  dealing.deal = seconds(p, "deal_seconds", 0.0);
  dealing.latency = seconds(p, "latency_seconds", 0.0);
  dealing.pause = seconds(p, "pause_seconds", 1e-9);
  std::vector<Dealing> dealings;
  for (const std::int64_t in_hand : p.integers("in_hand")) {
    require(in_hand >= 1, "in_hand", "integers >= 1", fmt::format("{}", in_hand));
    for (const std::int64_t ranks : p.integers("ranks")) {
      require(ranks >= 1 && ranks <= kMaxRanks, "ranks",
              fmt::format("integers from 1 to {}", kMaxRanks), fmt::format("{}", ranks));
      dealing.in_hand = in_hand;
      dealing.ranks = ranks;
      dealings.push_back(dealing);
    }
  }
  return dealings;
}

std::vector<Point> simulate(const RunContext& context) {
  const std::vector<Sweep> sweeps = draw_sweeps(context);
  const std::vector<Dealing> dealings = read_dealings(context.parameters);
  std::vector<Point> points(sweeps.size() * dealings.size());
  parallel_points(context, points.size(), [&](std::size_t i) {
    const Sweep& sweep = sweeps[i / dealings.size()];
    const Dealing& dealing = dealings[i % dealings.size()];
    points[i] = {sweep.distribution,
                 sweep.mean,
                 dealing,
                 sweep.work,
                 shortest_makespan(dealing, sweep.costs),
                 deal_points(dealing, sweep.costs)};
  });
  return points;
}

/// Share of all ranks' time that was work.
double efficiency(const Point& p, double makespan, double launch) {
  return p.work / (static_cast<double>(p.dealing.ranks) * (launch + makespan));
}

Table efficiency_table(const std::vector<Point>& points, double launch) {
  Table table("efficiency", "A sweep dealt over MPI, simulated event by event",
              {{"distribution", "", "of the points' costs"},
               {"mean_seconds", "s", "mean cost of a point"},
               {"in_hand", "1", "points that a rank is given ahead"},
               {"ranks", "1", "with the dealer's own"},
               {"makespan", "s", "from the first point sent until every rank can end"},
               {"efficiency", "1", "work / (ranks * (launch + makespan))"},
               {"bound", "1",
                "efficiency that no dealing could exceed: work / ranks, the longest "
                "point, and all services one after the other take so long"},
               {"dealer_busy", "1", "share of the makespan in which the dealer serves"},
               {"drain", "s", "of the makespan, with no point left to deal"},
               {"run_twice", "1", "points that rank 0 ran again for a silent rank"}});
  for (const Point& p : points)
    table.add_row({p.distribution, p.mean, p.dealing.in_hand, p.dealing.ranks, p.outcome.makespan,
                   efficiency(p, p.outcome.makespan, launch), efficiency(p, p.shortest, launch),
                   p.outcome.dealer_busy / p.outcome.makespan, p.outcome.drain,
                   p.outcome.run_twice});
  return table;
}

/// Efficiency over ranks for one distribution of costs, with the tool's points in hand.
Plot efficiency_plot(const std::vector<Point>& points, const std::string& distribution,
                     std::int64_t count, double launch) {
  const double service = points.front().dealing.service;
  Plot plot{"efficiency_" + distribution,
            fmt::format("{} points, {} costs, dealt by one rank ({:g} us a result, {} in hand)",
                        count, plain_name(distribution), 1e6 * service, kToolsInHand),
            {"ranks", true},
            {"efficiency (%)"},
            {}};
  for (const bool bound : {false, true}) {
    const std::vector<Series> series = series_by(
        points,
        [&](const Point& point) {
          return point.distribution == distribution && point.dealing.in_hand == kToolsInHand
                     ? fmt::format("{:g} s a point{}", point.mean,
                                   bound ? ", no dealing exceeds" : "")
                     : std::string();
        },
        [&](const Point& point) {
          const double makespan = bound ? point.shortest : point.outcome.makespan;
          return std::pair(static_cast<double>(point.dealing.ranks),
                           100.0 * efficiency(point, makespan, launch));
        },
        [&](const Point& /*first*/) {
          return bound ? Series::Style::dashed : Series::Style::lines_points;
        });
    plot.series.insert(plot.series.end(), series.begin(), series.end());
  }
  return plot;
}

std::vector<std::string> findings(const std::vector<Point>& points, const Parameters& p,
                                  double launch) {
  std::vector<std::string> lines;
  const double service = p.real("service_seconds");
  for (const double mean : p.reals("mean_seconds"))
    lines.push_back(
        fmt::format("At {:g} us a result the dealer can feed {:.0f} ranks with points "
                    "of {:g} s.",
                    1e6 * service, service > 0.0 ? mean / service : kMaxRanks, mean));
  const std::int64_t most = p.integers("ranks").back();
  for (const Point& point : points)
    if (point.dealing.ranks == most && point.dealing.in_hand == kToolsInHand)
      lines.push_back(
          fmt::format("{} points of {:g} s ({}) on {} ranks: efficiency {:.1f} % (no dealing "
                      "exceeds {:.1f} %), dealer busy {:.1f} %, drain {:.3g} s of {:.4g} s.",
                      p.integer("points"), point.mean, plain_name(point.distribution), most,
                      100.0 * efficiency(point, point.outcome.makespan, launch),
                      100.0 * efficiency(point, point.shortest, launch),
                      100.0 * point.outcome.dealer_busy / point.outcome.makespan,
                      point.outcome.drain, point.outcome.makespan));
  return lines;
}

}  // namespace

Results sweep_efficiency(const RunContext& context) {
  const double launch = seconds(context.parameters, "launch_seconds", 0.0);
  const std::vector<Point> points = simulate(context);
  require(!points.empty(), "ranks, in_hand, distributions, mean_seconds", "at least one value each",
          "none");
  Results results;
  results.tables = {efficiency_table(points, launch)};
  const Parameters& p = context.parameters;
  const std::vector<std::int64_t> in_hand = p.integers("in_hand");
  if (std::ranges::find(in_hand, kToolsInHand) != in_hand.end())
    for (const std::string& distribution : p.texts("distributions"))
      results.plots.push_back(efficiency_plot(points, distribution, p.integer("points"), launch));
  results.findings = findings(points, p, launch);
  return results;
}

}  // namespace fp8lab::experiments
