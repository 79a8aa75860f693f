// Points that end their process cost themselves and nothing else.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <thread>

#include "catch.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "sweep/toy.hpp"

namespace fp8lab {
namespace {

/// Ends its process in another way at each k from 5 to 9, and sends it what it ignores from 14 on.
Results fragile(const RunContext& context) {
  switch (context.parameters.integer("k")) {
    case 5:
      std::signal(SIGSEGV, SIG_DFL);  // the test runner's own handler would write a report
      ::raise(SIGSEGV);
      break;
    case 6:
      ::_exit(7);
    case 7:
      throw std::bad_alloc();
    case 8:
      throw std::runtime_error("not an error of ours");
    case 9:
      std::this_thread::sleep_for(std::chrono::hours(1));
      break;
    // What a terminal or a job's end sends to all processes is the sweep's matter, not a worker's.
    case 14:
      ::raise(SIGINT);
      break;
    case 15:
      ::raise(SIGTERM);
      break;
    case 16:
      ::raise(SIGHUP);
      break;
    case 17:
      ::raise(SIGQUIT);
      break;
    // Each is far below a limit that all of them together are above.
    case 20:
    case 21:
    case 22:
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      break;
    default:
      break;
  }
  return toy(context);
}

const Experiment kFragile{"toy", kToyToml, fragile};

SweepPlan fragile_plan(const std::string& axis) {
  SweepPlan plan = toy_plan({axis});
  plan.experiment = &kFragile;
  return plan;
}

PointRunner in_processes(int processes, double seconds) {
  return [=](const SweepPlan& plan, SweepLog& log, const OnSweepProgress& call) {
    run_points_in_processes(plan, log, {processes, seconds}, call);
  };
}

TEST_CASE("a point that ends its process is recorded with its reason", "[sweep][workers]") {
  const std::map<std::int64_t, std::string> expected{
      {5, "ended by signal 11"},   {6, "ended with exit code 7"}, {7, "out of memory"},
      {8, "not an error of ours"}, {9, "ran longer than 3 s"},    {13, "any number but 13"}};
  std::string first;
  for (const int processes : {1, 3}) {
    const TemporaryFolder folder("workers");
    const SweepPlan plan = fragile_plan("k=1:20");
    const SweepOutcome outcome =
        run_sweep(plan, folder.path(), false, in_processes(processes, 3.0), {});
    CHECK(outcome.progress.done == 20);
    CHECK(outcome.failed == 6);
    const std::string failures = read_file(folder.path() / "failures.csv");
    for (const auto& [k, reason] : expected) CHECK_THAT(failures, contains(reason));
    const std::string csv = read_file(folder.path() / "toy.csv");
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 14 * 3);
    const std::string all = failures + csv + read_file(folder.path() / "points.jsonl");
    if (first.empty()) first = all;
    CHECK(all == first);
  }
}

TEST_CASE("a sweep that crashed at each point is complete, and resumes as such",
          "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  const SweepPlan plan = fragile_plan("k=5");
  CHECK(run_sweep(plan, folder.path(), false, in_processes(2, 0.0), {}).failed == 1);
  const SweepOutcome again = run_sweep(plan, folder.path(), true, in_processes(2, 0.0), {});
  CHECK(again.progress.resumed == 1);
  CHECK(again.failed == 1);
}

TEST_CASE("why a point's process ended stands in its record, word for word", "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  const SweepPlan plan = fragile_plan("k=5:8");
  const SweepOutcome outcome = run_sweep(plan, folder.path(), false, in_processes(2, 0.0), {});
  CHECK(outcome.failed == 4);
  const SweepLog log =
      SweepLog::read(folder.path() / "points.jsonl", plan.identity(), plan.grid.size());
  CHECK(log.result(0).error == "the point's process ended by signal " + std::to_string(SIGSEGV) +
                                   " (" + ::strsignal(SIGSEGV) + ")");
  CHECK(log.result(1).error == "the point's process ended with exit code 7");
  CHECK(log.result(2).error == "out of memory");
  CHECK(log.result(3).error == "not an error of ours");
}

TEST_CASE("a point that runs too long is stopped soon, and counts from its own beginning",
          "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  const SweepPlan plan = fragile_plan("k=9,20,21,22");
  const auto start = std::chrono::steady_clock::now();
  run_sweep(plan, folder.path(), false, in_processes(1, 0.4), {});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  INFO("a limit of 0.4 s and three points of 0.15 s took " << seconds << " s");
  CHECK((seconds >= 0.85 && seconds < 3.0));
  const SweepLog log =
      SweepLog::read(folder.path() / "points.jsonl", plan.identity(), plan.grid.size());
  CHECK(log.result(0).error == "the point ran longer than 0.4 s");
  for (std::int64_t point = 1; point < 4; ++point) CHECK(log.result(point).error.empty());
}

TEST_CASE("progress counts what is done, of how many, and what was done before",
          "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  SweepPlan plan = toy_plan({"k=1:20"});
  plan.shard = {1, 3};  // 7 points: 1, 4, ... 19
  std::vector<std::int64_t> told;
  const auto note = [&](const SweepProgress& progress) {
    told.insert(told.end(), {progress.done, progress.total, progress.resumed});
  };
  const PointRunner first_two = [](const SweepPlan& of, SweepLog& log, const OnSweepProgress&) {
    for (const std::int64_t point : {4, 13}) log.append(run_point(of, point, 1));
  };
  SweepOutcome outcome = run_sweep(plan, folder.path(), false, first_two, note);
  CHECK((outcome.progress.done == 2 && outcome.progress.total == 7));
  CHECK((outcome.progress.resumed == 0 && outcome.files.empty()));
  CHECK(told.empty());
  outcome = run_sweep(plan, folder.path(), true, in_processes(2, 0.0), note);
  CHECK((outcome.progress.done == 7 && outcome.progress.total == 7));
  CHECK((outcome.progress.resumed == 2 && outcome.files.empty()));
  CHECK(told == std::vector<std::int64_t>{3, 7, 2, 4, 7, 2, 5, 7, 2, 6, 7, 2, 7, 7, 2});
  const SweepLog log = SweepLog::read(folder.path() / "points.jsonl", plan.identity(), 20);
  for (std::int64_t point = 0; point < 20; ++point) CHECK(log.done(point) == (point % 3 == 1));
}

TEST_CASE("workers refuse numbers that make no sense", "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  const SweepPlan plan = fragile_plan("k=1");
  int place = 0;
  const auto refused = [&](int processes, double seconds, const std::string& message) {
    CHECK_THROWS_WITH(run_sweep(plan, folder.path() / std::to_string(++place), false,
                                in_processes(processes, seconds), {}),
                      message);
  };
  const std::string range = "processes: expected 1 to " + std::to_string(kMostThreads) + ", got ";
  for (const int processes : {0, -1, kMostThreads + 1})
    refused(processes, 0.0, range + std::to_string(processes));
  for (const auto& [seconds, text] : {std::pair{-1.0, "-1"},
                                      {-5e-324, "-5e-324"},
                                      {std::numeric_limits<double>::infinity(), "inf"},
                                      {std::numeric_limits<double>::quiet_NaN(), "nan"}})
    refused(1, seconds, std::string("seconds: expected a finite number >= 0, got ") + text);
  CHECK(run_sweep(plan, folder.path() / "most", false, in_processes(kMostThreads, 0.0), {})
            .progress.done == 1);
  CHECK_THROWS_WITH(run_sweep(plan, folder.path() / "a", false, in_processes(0, 0.0), {}),
                    contains("processes"));
  CHECK_THROWS_WITH(run_sweep(plan, folder.path() / "b", false, in_processes(1, -1.0), {}),
                    contains("seconds"));
}

TEST_CASE("results larger than a pipe arrive whole", "[sweep][workers]") {
  const TemporaryFolder folder("workers");
  SweepPlan plan = toy_plan({"k=1:4"});
  std::string tiles = "tiles=";
  for (int i = 1; i <= 30'000; ++i) tiles += std::to_string(i) + (i < 30'000 ? "," : "");
  plan.grid.base.set(tiles);
  const SweepOutcome outcome = run_sweep(plan, folder.path(), false, in_processes(2, 0.0), {});
  CHECK(outcome.failed == 0);
  const std::string csv = read_file(folder.path() / "toy.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 4 * 30'000);
}

}  // namespace
}  // namespace fp8lab
