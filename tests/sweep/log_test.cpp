#include "lab/sweep/log.hpp"

#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
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

/// Rows of tables of one title; heads of other columns differ.
PointResult result_of(std::int64_t point, const std::vector<std::string>& columns,
                      const std::string& cell) {
  PointResult result;
  result.point = point;
  TableHead head{"t", "A table", {}};
  for (const std::string& column : columns) head.columns.push_back({column, "u", "of " + column});
  result.heads.push_back(head);
  result.rows.push_back({CsvRow(columns.size(), cell), CsvRow(columns.size(), cell + "2")});
  return result;
}

void check_same(const PointResult& expected, const PointResult& got) {
  CHECK(got.point == expected.point);
  CHECK(got.error == expected.error);
  CHECK(got.rows == expected.rows);
  REQUIRE(got.heads.size() == expected.heads.size());
  for (std::size_t t = 0; t < got.heads.size(); ++t) {
    CHECK(got.heads[t].name == expected.heads[t].name);
    CHECK(got.heads[t].title == expected.heads[t].title);
    REQUIRE(got.heads[t].columns.size() == expected.heads[t].columns.size());
    for (std::size_t c = 0; c < got.heads[t].columns.size(); ++c) {
      CHECK(got.heads[t].columns[c].name == expected.heads[t].columns[c].name);
      CHECK(got.heads[t].columns[c].unit == expected.heads[t].columns[c].unit);
      CHECK(got.heads[t].columns[c].description == expected.heads[t].columns[c].description);
    }
  }
}

TEST_CASE("a result is the same after a trip through text and through a log", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  PointResult two = result_of(4, {"a", "b"}, "x");
  const PointResult other = result_of(4, {"c"}, "1.5");
  two.heads.push_back(other.heads[0]);
  two.rows.push_back(other.rows[0]);
  const std::vector<PointResult> results{failure(5),
                                         two,
                                         result_of(0, {"a", "b"}, "y"),
                                         result_of(2, {"b", "a"}, "z"),
                                         {1, {}, {}, {}}};
  for (const PointResult& result : results) check_same(result, deserialize(serialize(result)));
  const fs::path path = folder / "points.jsonl";
  {
    SweepLog log = SweepLog::create(path, identity, 6);
    for (const PointResult& result : results) log.append(result);
    CHECK_THROWS_WITH(log.append(results[0]), contains("each point once, got 5"));
    CHECK_THROWS_WITH(SweepLog::create(path, identity, 6), contains("cannot open"));
    CHECK_THROWS_WITH(log.result(3), contains("point: expected one that is done, got 3"));
    CHECK(log.heads().size() == 3);
    for (const PointResult& result : results) check_same(result, log.result(result.point));
    log.sort();
    for (const PointResult& result : results) check_same(result, log.result(result.point));
    CHECK(log.done_count() == 5);
    CHECK(log.failed_count() == 1);
    CHECK(folder.files() == 1);
  }
  const SweepLog log = SweepLog::read(path, identity, 6);
  for (const PointResult& result : results) check_same(result, log.result(result.point));
  REQUIRE(log.heads().size() == 3);
  CHECK(log.heads()[2]->columns.at(0).name == "c");  // of point 4, in the order of points now
  CHECK(read_identity(path) == identity);
}

TEST_CASE("a log may say a point twice, but not in two ways", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  const auto lines_of = [&](const PointResult& result) {
    const fs::path path = folder / "one.jsonl";
    fs::remove(path);
    SweepLog::create(path, identity, 6).append(result);
    const std::string text = read_file(path);
    return std::pair(text.substr(0, text.find('\n') + 1), text.substr(text.find('\n') + 1));
  };
  const auto [first, one] = lines_of(result_of(2, {"a"}, "x"));
  const std::string other = lines_of(result_of(2, {"a"}, "y")).second;
  const std::string failed = lines_of(failure(2)).second;
  const auto read = [&](const std::string& text) {
    write_text(folder / "read.jsonl", text);
    return SweepLog::read(folder / "read.jsonl", identity, 6);
  };
  CHECK(read(first + one + one).done_count() == 1);
  for (const std::string& second : {other, failed})
    CHECK_THROWS_WITH(read(first + one + second),
                      contains("point 2 appears twice, with different results"));
  // Rows without their table's head are not done.
  const std::string rows = one.substr(one.find('\n') + 1);
  CHECK(read(first + rows).done_count() == 0);
  CHECK(read(first + rows + one).done_count() == 1);

  std::string broken = one;
  broken[3] = static_cast<char>(broken[3] ^ 1);
  const std::size_t head = one.size() - rows.size();
  const SweepLog damaged = read(first + broken.substr(0, head) + rows.substr(0, rows.size() - 1));
  CHECK(damaged.done_count() == 0);
  CHECK(damaged.damage().damaged_lines == 1);
  CHECK(damaged.damage().torn_bytes == static_cast<std::int64_t>(rows.size()) - 1);
  {
    const SweepLog repaired = SweepLog::resume(folder / "read.jsonl", identity, 6);
    CHECK(read_file(folder / "read.jsonl") == first + broken.substr(0, head));
    CHECK(read_file(folder / "read.jsonl.damaged") ==
          broken.substr(0, head) + rows.substr(0, rows.size() - 1));
  }
}

/// A line of a log with a right checksum.
std::string line_of(std::string json) {
  json.pop_back();
  return json + ",\"crc32\":\"" + crc32_text(json) + "\"}\n";
}

TEST_CASE("a log is read while another process writes to it", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  const fs::path path = folder / "points.jsonl";
  SweepLog writer = SweepLog::create(path, identity, 6);
  writer.append(failure(2));
  const SweepLog reader = SweepLog::read(path, identity, 6);
  CHECK(reader.done_count() == 1);
  CHECK(reader.result(2).error == "no reason");
  CHECK_THROWS_WITH(SweepLog::resume(path, identity, 6),
                    path.string() + ": another sweep is writing to it");
}

TEST_CASE("a log that changes under its reader is noticed", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  const fs::path path = folder / "points.jsonl";
  SweepLog::create(path, identity, 6).append(failure(2));
  const SweepLog log = SweepLog::read(path, identity, 6);
  std::string text = read_file(path);
  text[text.find("no reason")] = 'N';
  write_text(path, text);
  CHECK_THROWS_WITH(log.result(2), path.string() + ": changed while it was read");
}

TEST_CASE("the first difference between two sweeps is named", "[sweep]") {
  const TemporaryFolder folder("log");
  const fs::path path = folder / "points.jsonl";
  const std::string ours = R"({"a":1,"b":["x"],"c":true})";
  const auto refusal_of = [&](const std::string& theirs) {
    fs::remove(path);
    SweepLog::create(path, theirs, 3);
    try {
      SweepLog::read(path, ours, 3);
    } catch (const Error& error) {
      return std::string(error.what()).substr(path.string().size());
    }
    return std::string("none");
  };
  CHECK(refusal_of(ours) == "none");
  CHECK(refusal_of(R"({"a":2,"b":["y"],"c":true})") ==
        ": a of the recorded sweep: expected 1, got 2");
  CHECK(refusal_of(R"({"a":1,"b":["y"],"c":true})") ==
        R"(: b of the recorded sweep: expected ["x"], got ["y"])");
  CHECK(refusal_of(R"({"a":1,"b":["x"]})") == ": c of the recorded sweep: expected true, got null");
  const std::string more = R"({"a":1,"b":["x"],"c":true,"d":4})";
  CHECK(refusal_of(more) == ": the recorded sweep: expected " + ours + ", got " + more);
  const std::string turned = R"({"b":["x"],"a":1,"c":true})";
  CHECK(refusal_of(turned) == ": the recorded sweep: expected " + ours + ", got " + turned);
}

TEST_CASE("lines that are whole and still none of a sweep are refused by their place", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  const fs::path path = folder / "points.jsonl";
  SweepLog::create(path, identity, 6).append(result_of(1, {"a"}, "x"));
  const std::string whole = read_file(path);
  const auto read = [&](const std::string& more) {
    write_text(path, whole + more);
    return SweepLog::read(path, identity, 6);
  };
  CHECK(read(line_of(R"({"point":4,"error":"e"})")).failed_count() == 1);
  const std::string at = path.string() + ": byte " + std::to_string(whole.size());
  CHECK_THROWS_WITH(read(line_of(R"({"rows":{}})")),
                    contains(at + ": not a line of a sweep: ") && contains("point"));
  CHECK_THROWS_WITH(read(line_of(R"({"table":"t"})")),
                    contains(at + ": not a line of a sweep: ") && contains("title"));
  for (const char* point : {"-1", "6", "-9223372036854775808"}) {
    CAPTURE(point);
    CHECK_THROWS_WITH(read(line_of("{\"point\":" + std::string(point) + ",\"error\":\"e\"}")),
                      path.string() + ": point: expected 0 to 5, got " + point);
  }
  // Known when it is asked for.
  const std::string rows = whole.substr(whole.rfind("\"rows\":{\"") + 9, 8);
  const SweepLog log = read(line_of("{\"point\":3,\"rows\":{\"" + rows + "\":5}}"));
  CHECK(log.done(3));
  CHECK_THROWS_WITH(log.result(3),
                    contains(path.string() + ": point 3: not the result of a point: "));
  // A first line that belongs to something else, or to nothing.
  for (const std::string& first : {line_of(R"({"schema":"other"})"), std::string("{}\n"),
                                   line_of(R"({"sweep":{}})").substr(1)}) {
    CAPTURE(first);
    write_text(path, first);
    const std::string message =
        path.string() + ": the first line is damaged or does not belong to a sweep";
    CHECK_THROWS_WITH(read_identity(path), message);
    CHECK_THROWS_WITH(SweepLog::read(path, identity, 6), message);
  }
}

TEST_CASE("damage is counted by line, and only what ends the log is cut off", "[sweep]") {
  const TemporaryFolder folder("log");
  const std::string identity = toy_plan({"k=1:6"}).identity();
  const fs::path path = folder / "points.jsonl";
  SweepLog::create(path, identity, 6);
  const std::string head = read_file(path);
  const auto line = [](int point) {
    return line_of("{\"point\":" + std::to_string(point) + ",\"error\":\"e\"}");
  };
  const std::string bad = "what no sweep says\n";
  const std::string torn = line(5).substr(0, 9);
  struct Case {
    std::string text;           // after the first line
    std::int64_t lines, bytes;  // damaged, torn
    std::string damaged;
    std::int64_t done;
  };
  const auto size = [](const std::string& text) { return static_cast<std::int64_t>(text.size()); };
  for (const Case& c :
       {Case{line(0) + line(1), 0, 0, "", 2}, Case{line(0) + bad, 0, size(bad), bad, 1},
        Case{bad + line(0), 1, 0, bad, 1}, Case{line(0) + torn, 0, size(torn), torn, 1},
        Case{line(0) + bad + torn, 1, size(torn), bad + torn, 1},
        Case{bad + bad + line(3) + bad + bad, 3, size(bad), bad + bad + bad + bad, 1},
        Case{line(2) + bad + line(4) + "\n" + line(1), 2, 0, bad + "\n", 3},
        Case{bad, 0, size(bad), bad, 0}, Case{torn, 0, size(torn), torn, 0}}) {
    CAPTURE(c.text);
    const fs::path kept = path.string() + ".damaged";
    fs::remove(kept);
    write_text(path, head + c.text);
    for (const bool resumed : {false, true}) {
      CAPTURE(resumed);
      const SweepLog log =
          resumed ? SweepLog::resume(path, identity, 6) : SweepLog::read(path, identity, 6);
      CHECK(log.damage().damaged_lines == c.lines);
      CHECK(log.damage().torn_bytes == c.bytes);
      CHECK(log.done_count() == c.done);
      const auto cut = resumed ? static_cast<std::size_t>(c.bytes) : 0;
      CHECK(read_file(path) == head + c.text.substr(0, c.text.size() - cut));
      CHECK(fs::exists(kept) == (resumed && !c.damaged.empty()));
    }
    if (!c.damaged.empty()) CHECK(read_file(kept) == c.damaged);
  }
}

}  // namespace
}  // namespace fp8lab
