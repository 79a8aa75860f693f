// Deals points that sleep, over MPI as `fp8lab sweep --mpi` does, and compares the time with the
// simulation of experiments/sweep-efficiency. Sleeping needs no core: many ranks fit on few.
// usage: mpirun -n P fp8lab_mpi_dealing FOLDER DISTRIBUTION MEAN_SECONDS POINTS
// Fails if the run was shorter than its longest point or its share of the work, or hardly shorter
// than one rank's.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "lab/mpi/points.hpp"
#include "lab/mpi/session.hpp"
#include "sweep-efficiency/dealing.hpp"
#include "sweep-efficiency/point_costs.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// What each point sleeps; an experiment is a plain function and finds it here.
std::vector<double>& costs() {
  static std::vector<double> values;
  return values;
}

/// Sleeps for the point's cost and leaves a table of 64 rows, some 3 KB.
Results sleep_for_cost(const RunContext& context) {
  const auto point = static_cast<std::size_t>(context.parameters.integer("point"));
  std::this_thread::sleep_for(Seconds(costs().at(point)));
  Table table("slept", "Points that slept", {{"x", "1", "a number"}, {"y", "1", "the same"}});
  for (std::uint64_t row = 0; row < 64; ++row)
    table.add_row(std::vector<Cell>(2, context.random("x").uniform(row)));
  Results results;
  results.tables = {table};
  return results;
}

const Experiment kSleep{"sleep", "question = \"How long?\"\npoint = 0\n", sleep_for_cost};

SweepPlan plan_of(std::int64_t points) {
  SweepPlan plan;
  plan.experiment = &kSleep;
  plan.grid.experiment = kSleep.name;
  plan.grid.base = Parameters::from_toml(kSleep.default_toml, false);
  plan.grid.axes = {parse_axis(fmt::format("point=0:{}", points - 1), plan.grid.base)};
  return plan;
}

/// Seconds that the dealer needs to read a result and append it to a log, the median of many.
double service_seconds(const SweepPlan& plan, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  SweepLog log = SweepLog::create(folder / "service.jsonl", plan.identity(), plan.grid.size());
  const std::vector<double> slept = costs();
  std::ranges::fill(costs(), 0.0);
  std::vector<double> times;
  for (std::int64_t point = 0; point < std::min<std::int64_t>(plan.grid.size(), 101); ++point) {
    const std::string text = serialize(run_point(plan, point, 1));
    const auto start = Clock::now();
    log.append(deserialize(text));
    times.push_back(Seconds(Clock::now() - start).count());
  }
  costs() = slept;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

int report(const mpi::Session& session, double seconds, double service) {
  Dealing dealing;
  dealing.ranks = session.size();
  dealing.service = service;
  dealing.deal = dealing.latency = 5e-6;
  const double simulated = deal_points(dealing, costs()).makespan;
  dealing.service = 0.0;
  const double shortest = shortest_makespan(dealing, costs());
  const double work = std::accumulate(costs().begin(), costs().end(), 0.0);
  fmt::print(
      "ranks {} points {} work {:.3f} s: service {:.0f} us, makespan {:.3f} s (simulated {:.3f}, "
      "no shorter than {:.3f}), efficiency {:.1f} % (simulated {:.1f} %)\n",
      session.size(), costs().size(), work, 1e6 * service, seconds, simulated, shortest,
      100.0 * work / (seconds * session.size()), 100.0 * work / (simulated * session.size()));
  if (seconds < shortest) fmt::print("FAILED: shorter than points can sleep\n");
  const bool parallel = session.size() < 3 || seconds < 0.75 * work;
  if (!parallel) fmt::print("FAILED: hardly shorter than on one rank\n");
  return seconds < shortest || !parallel ? 1 : 0;
}

int deal(const std::vector<std::string>& arguments) {
  const mpi::Session session;
  return session.guard(2, [&] {
    const std::filesystem::path folder = arguments.at(0);
    CostDistribution distribution;
    distribution.shape = find_cost_shape(arguments.at(1));
    const std::int64_t points = std::stoll(arguments.at(3));
    costs() = draw_costs({1, "sleep"}, distribution, std::stod(arguments.at(2)), points);
    const SweepPlan plan = plan_of(points);
    if (!session.is_root()) {
      session.barrier();
      mpi::serve_points(session, plan);
      return 0;
    }
    std::filesystem::remove_all(folder);
    const double service = service_seconds(plan, folder);
    session.barrier();
    int lost = 0;
    double seconds = 0.0;
    const PointRunner runner = mpi::points_over_mpi(session, lost);
    run_sweep(plan, folder, false,
              [&](const SweepPlan& of, SweepLog& log, const OnSweepProgress& on_progress) {
                const auto start = Clock::now();
                runner(of, log, on_progress);
                seconds = Seconds(Clock::now() - start).count();
              },
              {});
    if (lost > 0) session.abandon(1);
    return report(session, seconds, service);
  });
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() != 4) {
    fmt::print(stderr, "usage: fp8lab_mpi_dealing FOLDER DISTRIBUTION MEAN_SECONDS POINTS\n");
    return 2;
  }
  try {
    return deal(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
