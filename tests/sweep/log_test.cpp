#include "fp8lab/sweep/log.hpp"

#include <string>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "sweep/toy.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

PointResult failure(std::int64_t point) {
  PointResult result;
  result.point = point;
  result.error = "no reason";
  return result;
}

TEST_CASE("a log takes the points of its grid, and says which those are", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  for (const std::int64_t points : {1, 6, 100}) {
    const fs::path path = folder.path() / (std::to_string(points) + ".jsonl");
    const std::string range = "expected 0 to " + std::to_string(points - 1) + ", got ";
    CAPTURE(points);
    {
      SweepLog log = SweepLog::create(path, identity, points);
      log.append(failure(points - 1));
      CHECK(log.done(points - 1));
      CHECK_THROWS_WITH(log.done(points), contains(range + std::to_string(points)));
      CHECK_THROWS_WITH(log.done(-1), contains(range + "-1"));
    }
    // The same file as the log of a smaller grid: its last point is one too many.
    CHECK_NOTHROW(SweepLog::read(path, identity, points));
    if (points == 1) continue;
    CHECK_THROWS_WITH(SweepLog::read(path, identity, points - 1),
                      contains("expected 0 to " + std::to_string(points - 2) + ", got " +
                               std::to_string(points - 1)));
  }
}

TEST_CASE("a log that is read counts what was done and what failed", "[sweep]") {
  const TemporaryFolder folder("log");
  const SweepPlan plan = toy_plan({"k=10:19"});  // k = 13 fails
  const fs::path path = folder.path() / "points.jsonl";
  {
    SweepLog log = SweepLog::create(path, plan.identity(), 10);
    for (const std::int64_t point : {2, 3, 5, 8}) log.append(run_point(plan, point, 1));
    CHECK(log.done_count() == 4);
    CHECK(log.failed_count() == 1);
  }
  for (const bool resumed : {false, true}) {
    SweepLog log = resumed ? SweepLog::resume(path, plan.identity(), 10)
                           : SweepLog::read(path, plan.identity(), 10);
    CAPTURE(resumed);
    CHECK(log.done_count() == 4);
    CHECK(log.failed_count() == 1);
    CHECK((log.damage().torn_bytes == 0 && log.damage().damaged_lines == 0));
    for (std::int64_t point = 0; point < 10; ++point) {
      CAPTURE(point);
      CHECK(log.done(point) == (point == 2 || point == 3 || point == 5 || point == 8));
    }
    CHECK_THAT(log.result(3).error, contains("any number but 13"));
    CHECK(log.result(2).error.empty());
    CHECK(log.result(2).rows == run_point(plan, 2, 1).rows);
  }
}

}  // namespace
}  // namespace fp8lab
