#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "sweep/toy.hpp"
#include "sweep_share.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// The final files of a sweep, as one text.
std::string files_text(const fs::path& folder) {
  std::string text;
  for (const char* file : {"points.jsonl", "toy.csv", "sweep.json"})
    text += read_file(folder / file);
  return text;
}

SweepOutcome sweep(const SweepPlan& plan, const fs::path& folder, bool resume = false,
                   int threads = 1) {
  return run_sweep(plan, folder, resume, on_threads(threads), {});
}

/// Sweeps the first `count` missing points only, as if killed then.
void sweep_part(const SweepPlan& plan, const fs::path& folder, std::int64_t count) {
  const PointRunner some = [count](const SweepPlan& of, SweepLog& log, const OnSweepProgress&) {
    std::int64_t left = count;
    for (std::int64_t point = 0; point < of.grid.size() && left > 0; ++point)
      if (!log.done(point)) {
        log.append(run_point(of, point, 1));
        --left;
      }
  };
  run_sweep(plan, folder, true, some, {});
}

/// Places of a log that lie `apart`, from the first on; where a share is wanted, four times as far
/// apart and from a drawn one on.
std::vector<std::size_t> places(std::size_t end, std::size_t apart) {
  const SweepShare share;
  const std::size_t step = share.is_part() ? 4 * apart : apart;
  std::vector<std::size_t> found;
  for (std::size_t at = share.is_part() ? share.draw() % step : 0; at < end; at += step)
    found.push_back(at);
  return found;
}

TEST_CASE("rows carry their point", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1,2", "tiles=16"}, 2);
  const SweepOutcome outcome = sweep(plan, folder.path());
  CHECK(outcome.progress.done == 4);
  CHECK(outcome.failed == 0);
  const std::string csv = read_file(folder.path() / "toy.csv");
  CHECK(csv.starts_with("k,tiles,repeat,seed,tile,draw,rule\n1,16,0," +
                        std::to_string(plan.grid.at(0).seed) + ",16,0."));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 5);
}

TEST_CASE("threads, interruptions and shards leave the bytes alone", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:20", "gain=0.1,0.2"}, 2);
  sweep(plan, folder.path() / "whole");
  const std::string expected = files_text(folder.path() / "whole");

  sweep(plan, folder.path() / "threads", false, 2);
  CHECK(files_text(folder.path() / "threads") == expected);

  for (const std::int64_t part : {0, 1, 33, 60}) sweep_part(plan, folder.path() / "parts", part);
  sweep(plan, folder.path() / "parts", true);
  CHECK(files_text(folder.path() / "parts") == expected);

  std::vector<fs::path> shards;
  for (std::int64_t i = 0; i < 3; ++i) {
    SweepPlan shard = plan;
    shard.shard = {i, 3};
    shards.push_back(folder.path() / ("shard" + std::to_string(i)));
    sweep(shard, shards.back());
  }
  const SweepOutcome merged = merge_shards(shards, folder.path() / "merged", find_toy);
  CHECK(merged.progress.done == plan.grid.size());
  CHECK(files_text(folder.path() / "merged") == expected);
}

TEST_CASE("of a point that several shards hold, the first one's result counts", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:5", "tiles=16"});
  // Each shard holds some points, and leaves its own name in them.
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> held{
      {"a", {0, 1, 4}}, {"b", {1, 2}}, {"c", {0, 1, 2, 3}}};
  std::vector<fs::path> shards;
  for (const auto& one : held) {
    const PointRunner some = [&](const SweepPlan& of, SweepLog& log, const OnSweepProgress&) {
      for (const std::int64_t point : one.second) {
        PointResult result = run_point(of, point, 1);
        result.rows[0][0].back() = one.first;
        log.append(result);
      }
    };
    shards.push_back(folder.path() / one.first);
    run_sweep(plan, shards.back(), false, some, {});
  }
  const std::vector<std::pair<std::string, std::string>> expected{
      {"abc", "aabca"}, {"acb", "aacca"}, {"bac", "abbca"}, {"bca", "cbbca"}, {"cab", "cccca"}};
  for (const auto& [order, winners] : expected) {
    std::vector<fs::path> given;
    for (const char name : order) given.push_back(shards[static_cast<std::size_t>(name - 'a')]);
    const fs::path merged = folder.path() / order;
    const SweepOutcome outcome = merge_shards(given, merged, find_toy);
    CHECK((outcome.progress.done == 5 && outcome.progress.resumed == 0));
    const SweepLog log = SweepLog::read(merged / "points.jsonl", plan.identity(), 5);
    std::string got;
    for (std::int64_t point = 0; point < 5; ++point) got += log.result(point).rows[0][0].back();
    INFO("shards in the order " << order);
    CHECK(got == winners);
  }
}

TEST_CASE("a log cut anywhere is resumed to the same bytes", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:6"});
  sweep(plan, folder.path() / "whole");
  const std::string expected = files_text(folder.path() / "whole");
  const std::string log = read_file(folder.path() / "whole" / "points.jsonl");
  const fs::path cut = folder.path() / "cut";
  fs::create_directories(cut);
  for (const std::size_t size : places(log.size() + 1, 7)) {
    write_text(cut / "points.jsonl", log.substr(0, size));  // no waiting for the disk
    const SweepOutcome outcome = sweep(plan, cut, true);
    CAPTURE(size);
    REQUIRE(outcome.progress.done == 6);
    REQUIRE(files_text(cut) == expected);
  }
}

TEST_CASE("files that a killed sweep left behind are gone when it ends", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:6"});
  const SweepOutcome outcome = sweep(plan, folder.path());
  const std::string expected = files_text(folder.path());
  std::vector<std::string> names = outcome.files;
  names.emplace_back("points.jsonl");
  for (const std::string& name : names)
    write_text(folder / ("." + name + ".0123abcd.partial"), "half");
  const std::vector<std::string> others = {
      ".other.csv.0123abcd.partial", "." + names.front() + ".0123abcd",
      "." + names.front() + ".0123abcd.partial.csv", "." + names.front() + ".0123abc.partial"};
  for (const std::string& name : others) write_text(folder / name, "not the sweep's");
  sweep(plan, folder.path(), true);
  for (const std::string& name : others) CHECK(fs::remove(folder / name));
  CHECK(folder.files() == names.size());
  CHECK(files_text(folder.path()) == expected);
}

TEST_CASE("damage inside the log is found, and its points run again", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:6"});
  sweep(plan, folder.path());
  const std::string expected = files_text(folder.path());
  const std::string log = read_file(folder.path() / "points.jsonl");
  const std::size_t header_end = log.find('\n');
  for (const std::size_t place : places(log.size() - header_end - 1, 11)) {
    const std::size_t at = header_end + 1 + place;
    std::string damaged = log;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file(folder.path() / "points.jsonl", damaged);
    const SweepOutcome outcome = sweep(plan, folder.path(), true);
    CAPTURE(at);
    REQUIRE(outcome.damage.damaged_lines + outcome.damage.torn_bytes > 0);
    REQUIRE(files_text(folder.path()) == expected);
  }
  std::string damaged = log;
  damaged[5] = 'X';
  write_file(folder.path() / "points.jsonl", damaged);
  CHECK_THROWS_AS(sweep(plan, folder.path(), true), Error);
}

TEST_CASE("another sweep's log is refused", "[sweep]") {
  const TemporaryFolder folder("sweep");
  sweep(toy_plan({"k=1:6"}), folder.path());
  CHECK_THROWS_WITH(sweep(toy_plan({"k=1:6"}), folder.path()),
                    contains("continue it with `resume`"));
  CHECK_THROWS_WITH(sweep(toy_plan({"k=1:7"}), folder.path(), true), contains("axes"));
  SweepPlan reseeded = toy_plan({"k=1:6"});
  reseeded.grid.seed = 5;
  CHECK_THROWS_WITH(sweep(reseeded, folder.path(), true), contains("seed"));
}

TEST_CASE("two writers of one log are refused", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:6"});
  const SweepLog log = SweepLog::create(folder.path() / "points.jsonl", plan.identity(), 6);
  CHECK_THROWS_WITH(sweep(plan, folder.path(), true), contains("another sweep is writing to it"));
}

TEST_CASE("points that fail are kept with their reason", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepOutcome outcome = sweep(toy_plan({"k=12:14"}), folder.path());
  CHECK(outcome.failed == 1);
  CHECK(outcome.progress.done == 3);
  CHECK_THAT(read_file(folder.path() / "failures.csv"), contains("any number but 13"));
}

TEST_CASE("a full disk loses nothing that was done", "[sweep]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=1:50"});
  sweep(plan, folder.path() / "whole");

  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4000;
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_WITH(sweep(plan, folder.path() / "full"), contains("cannot write"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  const SweepOutcome outcome = sweep(plan, folder.path() / "full", true);
  CHECK(outcome.damage.torn_bytes == 0);
  CHECK(outcome.progress.resumed > 5);
  CHECK(files_text(folder.path() / "full") == files_text(folder.path() / "whole"));
}

TEST_CASE("a point costs under a millisecond beside its experiment", "[sweep][slow]") {
  const TemporaryFolder folder("sweep");
  const SweepPlan plan = toy_plan({"k=20:10019", "tiles=16"}, 10);
  REQUIRE(plan.grid.size() == 100'000);
  const auto start = std::chrono::steady_clock::now();
  sweep(plan, folder.path());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  INFO(seconds << " s for 100 000 points");
  CHECK(seconds < 100.0);
}

}  // namespace
}  // namespace fp8lab
