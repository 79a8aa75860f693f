#pragma once
// Runs the points of a grid, stores each when it finishes, and writes tidy tables
// that do not depend on order, threads, ranks, shards or interruptions.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/experiment/experiment.hpp"
#include "lab/sweep/grid.hpp"
#include "lab/sweep/log.hpp"

namespace fp8lab {

/// Every `count`-th point from `index` on, for machines that share no network.
struct Shard {
  std::int64_t index = 0;  ///< 0 .. count - 1
  std::int64_t count = 1;

  [[nodiscard]] bool has(std::int64_t point) const { return point % count == index; }
};

/// The definition of a sweep: everything on which its results depend.
struct SweepPlan {
  const Experiment* experiment = nullptr;
  Grid grid;
  bool quick = false;
  Shard shard;

  /// The number of points of this shard.
  [[nodiscard]] std::int64_t points() const;
  /// JSON text of all of the above and of the library's version.
  [[nodiscard]] std::string identity() const;
  /// The shell command of the whole sweep, without the shard.
  [[nodiscard]] std::string command() const;
};

/// Finds an experiment by name; programs use `find_experiment`.
using FindExperiment = const Experiment& (*)(std::string_view name);

/// The plan of an identity. Throws `Error` for an identity of another version of the
/// library, or a damaged one.
SweepPlan plan_of_identity(std::string_view identity, FindExperiment find);

/// Runs one point on `threads` threads. An exception of the experiment becomes the
/// result's error, since some points of a grid may not be valid.
PointResult run_point(const SweepPlan& plan, std::int64_t point, int threads);

struct SweepProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;
  std::int64_t resumed = 0;  ///< points of `done` that were in the log
};
using OnSweepProgress = std::function<void(const SweepProgress&)>;

/// Runs the missing points of a log. For each result it calls `log.append` and then
/// `on_progress`, from one thread at a time.
using PointRunner =
    std::function<void(const SweepPlan& plan, SweepLog& log, const OnSweepProgress& on_progress)>;

struct WorkerOptions {
  int processes = 1;
  double seconds = 0.0;  ///< time limit of a point; 0: none
};

/// Runs points concurrently in worker processes with one thread each. If a point ends its process
/// (by a signal or an exit) or exceeds the limit, this is its error; other points are not affected.
void run_points_in_processes(const SweepPlan& plan, SweepLog& log, const WorkerOptions& options,
                             const OnSweepProgress& on_progress);

struct SweepOutcome {
  SweepProgress progress;
  LogDamage damage;
  std::int64_t failed = 0;         ///< points with an error
  std::vector<std::string> files;  ///< in the folder; empty for one shard of several
};

/// Runs a sweep in `folder`: `points.jsonl` is its log (log.hpp). When all
/// points of the plan are done, the log is sorted and `write_sweep_tables` runs
/// (not for one shard of several). Throws `Error` if the folder has a log and `resume`
/// is not set, and as SweepLog.
SweepOutcome run_sweep(const SweepPlan& plan, const std::filesystem::path& folder, bool resume,
                       const PointRunner& runner, const OnSweepProgress& on_progress);

/// Writes one CSV a table: the axes' columns, `repeat`, `seed`, then the table's
/// own, empty where a point's table has no such column; rows in the order of points. `failures.csv`
/// for points with an error. `sweep.json` (`"schema": "fp8lab.sweep.1"`) describes it: sweep (the
/// identity), question, command, tables [{name, title, file, rows, columns [{name, unit,
/// description}]}], points, failed, files. Nothing in them depends on time or machine. Returns the
/// file names.
std::vector<std::string> write_sweep_tables(const SweepPlan& plan, const SweepLog& log,
                                            const std::filesystem::path& folder);

/// Merges the shards of one sweep in `folder`. The result is that of a sweep without
/// shards. Throws `Error` for shards of different sweeps, and with the first missing
/// point.
SweepOutcome merge_shards(const std::vector<std::filesystem::path>& shards,
                          const std::filesystem::path& folder, FindExperiment find);

}  // namespace fp8lab
