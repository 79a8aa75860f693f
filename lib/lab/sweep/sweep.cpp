#include "lab/sweep/sweep.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogFile = "points.jsonl";

std::vector<CsvRow> csv_rows(const Table& table) {
  std::vector<CsvRow> rows;
  rows.reserve(table.rows().size());
  for (const std::vector<Cell>& row : table.rows()) {
    CsvRow& cells = rows.emplace_back();
    for (const Cell& cell : row) cells.push_back(to_csv(cell));
  }
  return rows;
}

SweepOutcome finish(const SweepPlan& plan, SweepLog& log, const fs::path& folder,
                    std::int64_t resumed) {
  log.sync();
  SweepOutcome outcome{
      {log.done_count(), plan.points(), resumed}, log.damage(), log.failed_count(), {}};
  if (log.done_count() < plan.points()) return outcome;
  log.sort();
  if (plan.shard.count == 1) outcome.files = write_sweep_tables(plan, log, folder);
  // The log is locked: nobody else writes these files.
  remove_abandoned_partials(folder, kLogFile);
  for (const std::string& file : outcome.files) remove_abandoned_partials(folder, file);
  return outcome;
}

}  // namespace

PointResult run_point(const SweepPlan& plan, std::int64_t point, int threads) {
  const FloatEnvironment environment;
  PointResult result{point, {}, {}, {}};
  try {
    GridPoint at = plan.grid.at(point);
    const Results results = plan.experiment->run({std::move(at.parameters), at.seed, threads, {}});
    for (const Table& table : results.tables) {
      result.heads.push_back({table.name(), table.title(), table.columns()});
      result.rows.push_back(csv_rows(table));
    }
  } catch (const std::bad_alloc&) {
    result = {point, {}, {}, "out of memory"};
  } catch (const std::exception& error) {
    result = {point, {}, {}, error.what()};
  }
  return result;
}

SweepOutcome run_sweep(const SweepPlan& plan, const fs::path& folder, bool resume,
                       const PointRunner& runner, const OnSweepProgress& on_progress) {
  plan.grid.validate();
  make_writable_folder(folder);
  const fs::path path = folder / kLogFile;
  if (!resume && fs::exists(path))
    throw Error(
        fmt::format("{}: already contains a sweep: continue it with {}, or choose another folder",
                    path.string(), argument("resume")));
  SweepLog log = resume ? SweepLog::resume(path, plan.identity(), plan.grid.size())
                        : SweepLog::create(path, plan.identity(), plan.grid.size());
  const std::int64_t resumed = log.done_count();
  if (resumed < plan.points()) runner(plan, log, on_progress);
  return finish(plan, log, folder, resumed);
}

SweepOutcome merge_shards(const std::vector<fs::path>& shards, const fs::path& folder,
                          FindExperiment find) {
  require(!shards.empty(), "shards", "at least one folder", "none");
  SweepPlan plan = plan_of_identity(read_identity(shards.front() / kLogFile), find);
  plan.shard = {};
  std::vector<SweepLog> logs;
  for (const fs::path& shard : shards) {
    const std::string identity = read_identity(shard / kLogFile);
    SweepPlan of_shard = plan_of_identity(identity, find);
    of_shard.shard = {};
    require(of_shard.identity() == plan.identity(), shard.string(), plan.identity(),
            of_shard.identity());
    logs.push_back(SweepLog::read(shard / kLogFile, identity, plan.grid.size()));
  }
  const auto log_of = [&](std::int64_t point) -> const SweepLog& {
    for (const SweepLog& log : logs)
      if (log.done(point)) return log;
    throw Error("shards", "all points between them", fmt::format("none with point {}", point));
  };
  for (std::int64_t point = 0; point < plan.grid.size(); ++point) log_of(point);
  make_writable_folder(folder);
  SweepLog merged = SweepLog::create(folder / kLogFile, plan.identity(), plan.grid.size());
  for (std::int64_t point = 0; point < plan.grid.size(); ++point)
    merged.append(log_of(point).result(point));
  return finish(plan, merged, folder, 0);
}

}  // namespace fp8lab
