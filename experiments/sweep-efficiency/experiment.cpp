#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"
#include "sweep-efficiency/dealing.hpp"
#include "sweep-efficiency/point_costs.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double kMaxRanks = 1e6;  // of the parameter
constexpr std::int64_t kToolsInHand = 2;

struct Settings {
  std::int64_t points = 0;
  std::vector<std::int64_t> ranks;
  std::vector<std::string> distributions;
  std::vector<double> mean_seconds;
  double log_normal_sigma = 0.0;
  double pareto_alpha = 0.0;
  std::vector<std::int64_t> in_hand;
  Dealing dealing;  ///< without ranks and points in hand
  double launch_seconds = 0.0;
  std::int64_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{
        field("points", &Settings::points),
        field("ranks", &Settings::ranks),
        field("distributions", &Settings::distributions),
        field("mean_seconds", &Settings::mean_seconds),
        field("log_normal_sigma", &Settings::log_normal_sigma),
        field("pareto_alpha", &Settings::pareto_alpha),
        field("in_hand", &Settings::in_hand),
        group(&Settings::dealing, field("service_seconds", &Dealing::service),
              field("deal_seconds", &Dealing::deal), field("latency_seconds", &Dealing::latency),
              field("pause_seconds", &Dealing::pause)),
        field("launch_seconds", &Settings::launch_seconds),
        field("repeats", &Settings::repeats)};
  }
};

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

std::vector<Sweep> draw_sweeps(const RunContext& context, const Settings& p) {
  std::vector<Sweep> sweeps;
  for (const std::string& name : p.distributions)
    for (const double mean : p.mean_seconds) {
      Sweep sweep{name, mean, {}, 0.0};
      sweep.costs =
          draw_costs(context.random("sweep-efficiency/" + name),
                     {find_cost_shape(name), p.log_normal_sigma, p.pareto_alpha}, mean, p.points);
      PairwiseSum work;
      for (const double cost : sweep.costs) work.add(cost);
      sweep.work = work.total();
      sweeps.push_back(std::move(sweep));
    }
  return sweeps;
}

std::vector<Dealing> make_dealings(const Settings& p) {
  std::vector<Dealing> dealings;
  for (const std::int64_t in_hand : p.in_hand)
    for (const std::int64_t ranks : p.ranks) {
      dealings.push_back(p.dealing);
      dealings.back().in_hand = in_hand;
      dealings.back().ranks = ranks;
    }
  return dealings;
}

std::vector<Point> simulate(const RunContext& context, const Settings& p) {
  const std::vector<Sweep> sweeps = draw_sweeps(context, p);
  const std::vector<Dealing> dealings = make_dealings(p);
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
  return row_table<Point>(
      "efficiency", "A sweep distributed over MPI, simulated event by event",
      {{"distribution", "", "of the points' costs", &Point::distribution},
       {"mean_seconds", "s", "mean cost of a point", &Point::mean},
       {"in_hand", "1", "points that a rank holds ahead",
        [](const Point& p) { return p.dealing.in_hand; }},
       {"ranks", "1", "with the dealer's own", [](const Point& p) { return p.dealing.ranks; }},
       {"makespan", "s", "from the first point sent until every rank can end",
        [](const Point& p) { return p.outcome.makespan; }},
       {"efficiency", "1", "work / (ranks * (launch + makespan))",
        [=](const Point& p) { return efficiency(p, p.outcome.makespan, launch); }},
       {"bound", "1",
        "upper bound of the efficiency: work / ranks, the longest point, and the total service "
        "time are each a lower bound of the time",
        [=](const Point& p) { return efficiency(p, p.shortest, launch); }},
       {"dealer_busy", "1", "share of the makespan in which the dealer serves",
        [](const Point& p) { return p.outcome.dealer_busy / p.outcome.makespan; }},
       {"drain", "s", "share of the makespan after the last point was sent",
        [](const Point& p) { return p.outcome.drain; }},
       {"run_twice", "1", "points that rank 0 ran again for a silent rank",
        [](const Point& p) { return p.outcome.run_twice; }}},
      points);
}

/// One point, a figure for each draw of its costs.
struct Summary {
  std::string distribution;
  double mean = 0.0;
  Dealing dealing;
  std::vector<double> efficiency;   ///< in percent
  std::vector<double> bound;        ///< in percent
  std::vector<double> dealer_busy;  ///< in percent
  std::vector<double> drain;        ///< in seconds
  std::vector<double> makespan;     ///< in seconds
};

std::vector<Summary> summaries_of(const std::vector<std::vector<Point>>& draws, double launch) {
  std::vector<Summary> all;
  for (std::size_t i = 0; i < draws.front().size(); ++i) {
    const Point& first = draws.front()[i];
    Summary summary{first.distribution, first.mean, first.dealing, {}, {}, {}, {}, {}};
    for (const std::vector<Point>& points : draws) {
      const Point& p = points[i];
      summary.efficiency.push_back(100.0 * efficiency(p, p.outcome.makespan, launch));
      summary.bound.push_back(100.0 * efficiency(p, p.shortest, launch));
      summary.dealer_busy.push_back(100.0 * p.outcome.dealer_busy / p.outcome.makespan);
      summary.drain.push_back(p.outcome.drain);
      summary.makespan.push_back(p.outcome.makespan);
    }
    all.push_back(std::move(summary));
  }
  return all;
}

/// Whether draws differ, but for the last digits: those of equal costs do not.
bool differ(const std::vector<double>& values) {
  const Spread spread = spread_of(values);
  return spread.max - spread.min > 1e-9 * spread.max;
}

/// The longest points decide, so figures spread by factors. `most`: what none exceeds.
std::string figure_text(const std::vector<double>& values,
                        double most = std::numeric_limits<double>::infinity()) {
  return differ(values) ? log_interval_text(values, 1.0, most)
                        : fmt::format("{:.3g}", values.front());
}

/// Efficiency over ranks for one distribution of costs, with the tool's points in hand.
Plot efficiency_plot(const std::vector<Summary>& points, const std::string& distribution,
                     const Settings& p) {
  Plot plot{
      "efficiency_" + distribution,
      fmt::format(
          "{} points, {} costs, distributed by one rank ({:g} us per result, {} held per rank)",
          p.points, plain_name(distribution), 1e6 * p.dealing.service, kToolsInHand),
      {"ranks", true},
      {"efficiency (%)"},
      {}};
  for (const bool bound : {false, true}) {
    const std::vector<Series> series = series_by(
        points,
        [&](const Summary& point) {
          return point.distribution == distribution && point.dealing.in_hand == kToolsInHand
                     ? fmt::format("{:g} s a point{}", point.mean,
                                   bound ? ", no dealing exceeds" : "")
                     : std::string();
        },
        [&](const Summary& point) {
          const Spread spread = spread_of(bound ? point.bound : point.efficiency);
          return std::tuple(static_cast<double>(point.dealing.ranks), spread.mean, spread.min,
                            spread.max);
        },
        [&](const Summary& /*first*/) {
          return bound ? Series::Style::dashed : Series::Style::lines_points;
        });
    plot.series.insert(plot.series.end(), series.begin(), series.end());
  }
  share_colours(plot.series, ", no dealing exceeds", "");
  return plot;
}

std::vector<std::string> findings(const std::vector<Summary>& points, const Settings& p) {
  std::vector<std::string> lines;
  const double service = p.dealing.service;
  for (const double mean : p.mean_seconds)
    lines.push_back(fmt::format(
        "At {:g} us per result the dealer can keep {:.0f} ranks busy with points of {:g} s.",
        1e6 * service, service > 0.0 ? mean / service : kMaxRanks, mean));
  const std::int64_t most = p.ranks.back();
  for (const Summary& point : points)
    if (point.dealing.ranks == most && point.dealing.in_hand == kToolsInHand)
      lines.push_back(
          fmt::format("{} points of {:g} s ({}) on {} ranks: efficiency {} % (upper bound {} %), "
                      "dealer busy {}, drain {} s of {} s{}.",
                      p.points, point.mean, plain_name(point.distribution), most,
                      figure_text(point.efficiency, 100.0), figure_text(point.bound, 100.0),
                      differ(point.dealer_busy) ? share_text(point.dealer_busy, 1.0)
                                                : figure_text(point.dealer_busy) + " %",
                      figure_text(point.drain), figure_text(point.makespan),
                      differ(point.makespan) ? fmt::format(" ({})", kIntervalMeaning) : ""));
  return lines;
}

}  // namespace

Results sweep_efficiency(const RunContext& context) {
  const auto p = read_parameters<Settings>(context.parameters);
  const auto draws = measure_repeats(context, static_cast<std::size_t>(p.repeats),
                                     [&](const RunContext& one) { return simulate(one, p); });
  std::vector<Table> tables;
  for (const std::vector<Point>& points : draws)
    tables.push_back(efficiency_table(points, p.launch_seconds));
  const std::vector<Summary> points = summaries_of(draws, p.launch_seconds);
  Results results;
  results.tables = join_repeats(
      tables, {"makespan", "efficiency", "bound", "dealer_busy", "drain", "run_twice"});
  if (std::ranges::find(p.in_hand, kToolsInHand) != p.in_hand.end())
    for (const std::string& distribution : p.distributions)
      results.plots.push_back(efficiency_plot(points, distribution, p));
  results.findings = findings(points, p);
  return results;
}

}  // namespace fp8lab::experiments
