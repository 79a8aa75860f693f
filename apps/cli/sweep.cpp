#include "lab/sweep/sweep.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/integer_list.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/model_parameters.hpp"
#include "lab/sweep/grid_file.hpp"
#include "models.hpp"
#include "option_text.hpp"
#include "progress_bar.hpp"
#include "say.hpp"
#ifdef FP8LAB_WITH_MPI
#include "lab/mpi/points.hpp"
#endif

namespace fp8lab::cli {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kShownPoints = 20;
constexpr double kMostSeconds = 1e9;
constexpr Seconds kEstimateBudget{3.0};

struct SweepArguments {
  std::string name;
  std::vector<std::string> axes;
  std::vector<std::string> assignments;
  ModelFiles models;
  std::optional<std::int64_t> repeats;
  std::optional<std::uint64_t> seed;
  std::string shard = "0/1";
  std::string out = "sweep";
  int threads = 0;  ///< all
  double point_seconds = 0.0;
  bool quick = false;
  bool dry_run = false;
  bool resume = false;
  bool mpi = false;
  bool json = false;
};

Shard parse_shard(const std::string& text) {
  constexpr std::string_view kForm = "INDEX/COUNT with INDEX from 0 to COUNT - 1";
  const std::vector<std::int64_t> parts = parse_integers("shard", text, '/', 2, kForm);
  require(parts[0] >= 0 && parts[0] < parts[1], "shard", kForm, fmt::format("'{}'", text));
  return {.index = parts[0], .count = parts[1]};
}

/// The axis with definitions in the place of the names that files gave them.
GridAxis resolved(const GridAxis& axis, const Parameters& base, const ModelBook& book) {
  if (!holds_models(base, axis.key)) return axis;
  std::string spec = axis.key + "=";
  for (const AxisValue& value : axis.values) {
    const std::string model = book.resolve(std::get<std::string>(value.cell));
    (void)find_instruction_model(model);
    spec += (&value == axis.values.data() ? "" : ",") + model;
  }
  return parse_axis(spec, base);
}

/// What the command line says on top of what the grid file says.
SweepPlan plan_of(const SweepArguments& options) {
  GridFile file;
  std::string name = options.name;
  if (name.ends_with(".toml")) {
    file = parse_grid_file(read_file(name));
    require(file.experiment.has_value(), name, "experiment = \"NAME\"", "none");
    name = *file.experiment;
  }
  SweepPlan plan;
  plan.experiment = &find_experiment(name);
  plan.quick = options.quick || file.quick.value_or(false);
  plan.shard = parse_shard(options.shard);
  Grid& grid = plan.grid;
  grid.experiment = name;
  grid.repeats = options.repeats.value_or(file.repeats.value_or(1));
  grid.seed = options.seed.value_or(file.seed.value_or(1));
  grid.base = Parameters::from_toml(plan.experiment->default_toml, plan.quick);
  for (const auto* assignments : {&std::as_const(file).assignments, &options.assignments})
    for (const std::string& assignment : *assignments) grid.base.set(assignment);
  const ModelBook book = load_models(options.models);
  resolve_models(grid.base, book);
  for (const auto* axes : {&std::as_const(file).axes, &options.axes})
    for (const std::string& axis : *axes)
      grid.axes.push_back(resolved(parse_axis(axis, grid.base), grid.base, book));
  grid.validate();
  return plan;
}

std::string point_text(const SweepPlan& plan, std::int64_t index) {
  const GridPoint point = plan.grid.at(index);
  std::string text = fmt::format("{:>8}", index);
  for (std::size_t a = 0; a < plan.grid.axes.size(); ++a)
    text += fmt::format("  {}={}", plan.grid.axes[a].key, to_csv(point.coordinates[a]));
  return fmt::format("{}  repeat={}  seed={}", text, point.repeat, point.seed);
}

std::string duration_text(double seconds) {
  if (seconds < 90.0) return fmt::format("{:.2g} s", seconds);
  if (seconds < 5400.0) return fmt::format("{:.0f} min", seconds / 60.0);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

/// Seconds a point, from the first, the last and the middle one, as many as the budget allows.
std::pair<double, int> measure_points(const SweepPlan& plan) {
  const std::int64_t last = plan.grid.size() - 1;
  std::vector<std::int64_t> sample{0, last, last / 2};
  sample.resize(static_cast<std::size_t>(std::min<std::int64_t>(3, plan.grid.size())));
  const auto start = Clock::now();
  int measured = 0;
  for (const std::int64_t point : sample) {
    run_point(plan, point, 1);
    ++measured;
    if (Clock::now() - start > kEstimateBudget) break;
  }
  return {Seconds(Clock::now() - start).count() / measured, measured};
}

int dry_run(const SweepPlan& plan, const SweepArguments& options) {
  say("{}\n\n", plan.command());
  const std::int64_t points = plan.points();
  for (std::int64_t i = 0; i < std::min(points, kShownPoints); ++i)
    say("{}\n", point_text(plan, plan.shard.index + i * plan.shard.count));
  if (points > kShownPoints) say("     ... {} more points\n", points - kShownPoints);
  const auto [seconds, measured] = measure_points(plan);
  say("\n{}, {:.2g} s per point ({} measured), about {} on {}\n", counted(points, "point"), seconds,
      measured, duration_text(static_cast<double>(points) * seconds / options.threads),
      counted(options.threads, "thread"));
  return kPass;
}

/// Rate and time left of the points that this run does itself.
std::string rate_text(const SweepProgress& progress, double seconds) {
  const auto ran = static_cast<double>(progress.done - progress.resumed);
  const double rate = ran / std::max(seconds, 1e-9);
  return fmt::format("  {} of {}, {:.3g} points/s, {} left", progress.done, progress.total, rate,
                     duration_text(static_cast<double>(progress.total - progress.done) / rate));
}

void report_damage(const LogDamage& damage, const std::string& folder) {
  if (damage.torn_bytes > 0)
    say(stderr,
        "fp8lab: {}/points.jsonl: the last line was incomplete ({} bytes) and was removed\n",
        folder, damage.torn_bytes);
  if (damage.damaged_lines > 0)
    say(stderr,
        "fp8lab: {}/points.jsonl: {} damaged lines, kept in points.jsonl.damaged; their "
        "points were run again\n",
        folder, damage.damaged_lines);
}

int report(const SweepOutcome& outcome, const std::string& folder, bool json) {
  report_damage(outcome.damage, folder);
  if (json) {
    const nlohmann::ordered_json summary{{"folder", folder},
                                         {"points", outcome.progress.total},
                                         {"done", outcome.progress.done},
                                         {"resumed", outcome.progress.resumed},
                                         {"failed", outcome.failed},
                                         {"files", outcome.files}};
    fmt::print("{}\n", json_text(summary, 2));
  } else {
    say("{}: {} of {} points done", folder, outcome.progress.done, outcome.progress.total);
    if (outcome.progress.resumed > 0) say(", {} of them before", outcome.progress.resumed);
    if (outcome.failed > 0) say(", {} failed", outcome.failed);
    fmt::print("\n");
    for (const std::string& file : outcome.files) say("  {}/{}\n", folder, file);
  }
  const bool complete = outcome.progress.done == outcome.progress.total;
  return complete && outcome.failed == 0 ? kPass : kMismatch;
}

SweepOutcome run_with_progress(const SweepPlan& plan, const SweepArguments& options,
                               const PointRunner& runner) {
  ProgressBar bar(plan.experiment->name);
  const auto start = Clock::now();
  return run_sweep(plan, options.out, options.resume, runner, [&](const SweepProgress& progress) {
    bar.show(static_cast<double>(progress.done) / static_cast<double>(progress.total),
             rate_text(progress, Seconds(Clock::now() - start).count()));
  });
}

#ifdef FP8LAB_WITH_MPI
int run_as_root(const mpi::Session& session, const SweepPlan& plan, const SweepArguments& options) {
  int lost_ranks = 0;
  bool dealt = false;
  const PointRunner deal = mpi::points_over_mpi(session, lost_ranks);
  const SweepOutcome outcome = run_with_progress(
      plan, options, [&](const SweepPlan& of, SweepLog& log, const OnSweepProgress& call) {
        dealt = true;
        deal(of, log, call);
      });
  if (!dealt) mpi::dismiss_ranks(session);
  const int code = report(outcome, options.out, options.json);
  if (lost_ranks > 0) {
    say(stderr, "fp8lab: {} of {} ranks did not answer; their points were run again\n", lost_ranks,
        session.size());
    keep_exit_code();
    session.abandon(code);
  }
  return code;
}

int run_over_mpi(const SweepPlan& plan, const SweepArguments& options, const Command& program) {
  const mpi::Session session;
  return session.guard(kUsage, [&] {
    return naming_options(program, [&] {
      if (session.is_root()) return run_as_root(session, plan, options);
      mpi::serve_points(session, plan);
      return static_cast<int>(kPass);
    });
  });
}
#else
int run_over_mpi(const SweepPlan& /*plan*/, const SweepArguments& /*options*/,
                 const Command& /*program*/) {
  throw Error("mpi", "a build with MPI (FP8LAB_ENABLE_MPI)", "one without");
}
#endif

int run(SweepArguments options, const Command& program) {
  options.threads = team_size(options.threads);
  const SweepPlan plan = plan_of(options);
  if (options.dry_run) return dry_run(plan, options);
  if (options.mpi) return run_over_mpi(plan, options, program);
  const SweepOutcome outcome = run_with_progress(
      plan, options, [&](const SweepPlan& of, SweepLog& log, const OnSweepProgress& call) {
        run_points_in_processes(of, log, {options.threads, options.point_seconds}, call);
      });
  return report(outcome, options.out, options.json);
}

}  // namespace

void add_sweep(Command& app, Action& action) {
  auto options = std::make_shared<SweepArguments>();
  Command* command = app.add_subcommand(
      "sweep", "Run an experiment at every point of a grid; --resume continues it");
  command->add_option("EXPERIMENT", options->name, "an experiment, or a grid file (.toml)")
      ->required();
  command
      ->add_option(
          "--axis", options->axes,
          "KEY=VALUE,..., KEY=all or KEY=FIRST:LAST:*FACTOR (or :+STEP); KEY.F=10:16 changes "
          "the parameter F of the models that KEY names")
      ->type_name("KEY=VALUES")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_option("--set", options->assignments, "a parameter for all points")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  add_models_option(*command, options->models);
  command
      ->add_option("--repeat", options->repeats,
                   "how often each point runs, each time with a different seed")
      ->take_last();
  command->add_option("--seed", options->seed, "seed from which the seed of each point is derived")
      ->take_last();
  command->add_option("--shard", options->shard, "run only this part of the points")
      ->type_name("INDEX/COUNT")
      ->capture_default_str()
      ->take_last();
  command->add_option("--out", options->out, "folder of the sweep")
      ->capture_default_str()
      ->take_last();
  command
      ->add_option("--threads", options->threads,
                   "points that run at the same time; results do not depend on their number")
      ->check(between(1, kMostThreads))
      ->take_last();
  command
      ->add_option("--point-seconds", options->point_seconds,
                   "a point that runs longer fails; 0: no limit. Not with --mpi")
      ->capture_default_str()
      ->check(between(0.0, kMostSeconds))
      ->take_last();
  command->add_flag("--quick", options->quick, "run the experiment's small form at each point");
  command->add_flag("--resume", options->resume, "continue the sweep in the folder");
  command->add_flag(
      "--mpi", options->mpi,
      "under mpirun: run points on all its ranks, one thread each; the bytes are the same");
  command->add_flag("--dry-run", options->dry_run,
                    "only show the points and an estimate of the time");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback(
      [options, &action, &app] { action = [options, &app] { return run(*options, app); }; });
}

void add_merge(Command& app, Action& action) {
  struct MergeOptions {
    std::vector<std::string> shards;
    std::string out;
    bool json = false;
  };
  auto options = std::make_shared<MergeOptions>();
  Command* command = app.add_subcommand("merge", "Merge the shards of a sweep");
  command->add_option("SHARD", options->shards, "folders of finished shards")->required();
  command->add_option("-o,--out", options->out, "folder of the whole sweep")->required();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] {
    action = [options] {
      const std::vector<std::filesystem::path> shards(options->shards.begin(),
                                                      options->shards.end());
      return report(merge_shards(shards, options->out, find_experiment), options->out,
                    options->json);
    };
  });
}

}  // namespace fp8lab::cli
