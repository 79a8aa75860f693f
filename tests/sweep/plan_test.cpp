// What a sweep's plan says of its points, and what a folder holds of an earlier sweep.

#include <nlohmann/json.hpp>
#include <set>

#include "catch.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "lab/sweep/grid_file.hpp"
#include "sweep/toy.hpp"

namespace fp8lab {
namespace {

TEST_CASE("points of two experiments have no seed in common", "[sweep]") {
  const SweepPlan plan = toy_plan({"k=1:5"}, 2);
  SweepPlan other = plan;
  other.grid.experiment = "tory";
  std::set<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < plan.grid.size(); ++i) {
    seeds.insert(plan.grid.at(i).seed);
    seeds.insert(other.grid.at(i).seed);
  }
  CHECK(seeds.size() == 20);
}

TEST_CASE("a sweep's command gives the same plan again", "[sweep]") {
  SweepPlan plan = toy_plan({"k=1,2"}, 3);
  plan.grid.seed = 7;
  CHECK(plan.command() == "fp8lab sweep toy --axis k=1,2 --repeat 3 --seed 7");
  plan.quick = true;
  plan.grid.base = Parameters::from_toml(kToyToml, true);
  plan.grid.base.set("gain=0.25");
  CHECK(plan.command() ==
        "fp8lab sweep toy --quick --set gain=0.25 --axis k=1,2 --repeat 3 --seed 7");
}

TEST_CASE("a shard has the points that it says", "[sweep]") {
  SweepPlan plan = toy_plan({"k=1:6"}, 2);
  for (std::int64_t count = 1; count <= 13; ++count)
    for (std::int64_t index = 0; index < count; ++index) {
      plan.shard = {index, count};
      std::int64_t points = 0;
      for (std::int64_t point = 0; point < plan.grid.size(); ++point)
        points += plan.shard.has(point) ? 1 : 0;
      INFO("shard " << index << "/" << count);
      CHECK(plan.points() == points);
    }
}

TEST_CASE("failures of an earlier sweep leave the folder with it", "[sweep]") {
  const auto failures_after = [](const char* axis) {
    const TemporaryFolder folder("sweep");
    const std::filesystem::path file = folder.path() / "failures.csv";
    write_text(file, "of an earlier sweep");
    run_sweep(toy_plan({axis}), folder.path(), false, on_threads(1), {});
    return std::filesystem::exists(file) ? read_file(file) : "none";
  };
  CHECK(failures_after("k=1:3") == "none");
  CHECK_THAT(failures_after("k=12:14"), contains("any number but 13"));
}

TEST_CASE("a grid file is read key by key, axes in the order of their lines", "[sweep]") {
  const GridFile file = parse_grid_file(R"(experiment = "toy"
repeat = 5
seed = 7
quick = true
[set]
tiles = [1, 2]
gain = 0.25
rule = "a b"
[axes]
k = "1:8:*2"
gain = [0.5, 0.125]
tiles = [[16, 64], [32], 8]
models.F = 8
models.M = [1, 2]
)");
  using Texts = std::vector<std::string>;
  CHECK(file.experiment == "toy");
  CHECK(file.repeats == 5);
  CHECK(file.seed == 7);
  CHECK(file.quick == true);
  CHECK(file.assignments == Texts{"tiles=1,2", "gain=0.25", "rule=a b"});
  CHECK(file.axes ==
        Texts{"k=1:8:*2", "gain=0.5,0.125", "tiles=[16,64],[32],8", "models.F=8", "models.M=1,2"});
  const GridFile empty = parse_grid_file("");
  CHECK((!empty.experiment && !empty.repeats && !empty.seed && !empty.quick));
  CHECK((empty.assignments.empty() && empty.axes.empty()));
  CHECK(parse_grid_file("seed = 0").seed == 0);
  for (const char* text : {"[axes]", "[set]", "axes = {}\nset = {}"}) {
    INFO(text);
    const GridFile none = parse_grid_file(text);
    CHECK((none.assignments.empty() && none.axes.empty()));
  }
}

TEST_CASE("what a grid file cannot say is refused by its key", "[sweep]") {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{"experiment = 7", "grid file: experiment: expected text, got 7"},
        Case{"repeat = 1.5", "grid file: repeat: expected an integer, got 1.5"},
        Case{"repeat = \"2\"", "grid file: repeat: expected an integer"},
        Case{"seed = -1", "grid file: seed: expected an integer from 0 on, got -1"},
        Case{"seed = true", "grid file: seed: expected an integer, got true"},
        Case{"quick = 1", "grid file: quick: expected true or false, got 1"},
        Case{"set = 1", "grid file: set: expected a table, got 1"},
        Case{"axes = []", "grid file: axes: expected a table"},
        Case{"[axes]\nk.a.b = 1", "grid file: axes.k.a: expected a value, or a list of values"},
        Case{"[set]\nk = [{a = 1}]", "grid file: set.k: expected a value, or a list of values"},
        Case{"repeats = 1", "experiment, repeat, seed, quick, [set] or [axes], got 'repeats'"},
        Case{"seed = 1\nseed", "grid file:2:"}}) {
    INFO(c.text);
    CHECK_THROWS_WITH(parse_grid_file(c.text), contains(c.message));
  }
  CHECK_THROWS_WITH(parse_grid_file("seed = 1\n\nquick = maybe\n"), contains("grid file:3:9: "));
  CHECK_THROWS_WITH(parse_grid_file("[axes]\n  k == 1\n"), contains("grid file:2:6: "));
}

TEST_CASE("a plan is not taken from another version's identity, or from part of one", "[sweep]") {
  SweepPlan plan = toy_plan({"k=1:5"}, 3);
  plan.quick = true;
  plan.grid.base = Parameters::from_toml(kToyToml, true);
  plan.grid.seed = 11;
  plan.shard = {2, 4};
  const auto whole = nlohmann::ordered_json::parse(plan.identity());
  const SweepPlan again = plan_of_identity(whole.dump(), find_toy);
  CHECK(again.identity() == plan.identity());
  CHECK((again.quick && again.grid.seed == 11 && again.grid.repeats == 3));
  CHECK((again.shard.index == 2 && again.shard.count == 4));
  CHECK(again.grid.base.integer("k") == 2);
  for (const auto& [key, value] : whole.items()) {
    auto part = whole;
    part.erase(key);
    INFO("without " << key);
    CHECK_THROWS_WITH(
        plan_of_identity(part.dump(), find_toy),
        contains("sweep: expected the plan in the log of the sweep") && contains(key));
  }
  auto other = whole;
  other["version"] = "0";
  CHECK_THROWS_WITH(plan_of_identity(other.dump(), find_toy), contains("sweep: version: expected"));
  other = whole;
  other["repeats"] = 0;
  CHECK_THROWS_WITH(plan_of_identity(other.dump(), find_toy),
                    contains("repeat: expected at least"));
  for (const char* shard : {"", "/4", "2/", "a/b"}) {
    other = whole;
    other["shard"] = shard;
    INFO(shard);
    CHECK_THROWS_WITH(plan_of_identity(other.dump(), find_toy),
                      contains("sweep: shard: expected INDEX/COUNT"));
  }
}

/// A table of one column that is named as the rule says, or two at k = 2.
Results named(const RunContext& context) {
  const std::string name = context.parameters.text("rule");
  std::vector<Column> columns{{name == "column" ? "k" : "x", "1", "x"}};
  if (context.parameters.integer("k") == 2) columns.insert(columns.begin(), {"y", "m", "y"});
  Table table(name == "column" ? "toy" : name, "A toy", columns);
  if (columns.size() == 1)
    table.add_row({context.parameters.integer("k") * 10});
  else
    table.add_row({std::string("two"), std::int64_t{20}});
  Results results;
  results.tables.push_back(std::move(table));
  return results;
}

const Experiment kNamed{"toy", kToyToml, named};

TEST_CASE("tables of a sweep have every point's columns, and the axes' beside them", "[sweep]") {
  const auto csv_of = [](const char* rule, const char* file) {
    const TemporaryFolder folder("tables");
    SweepPlan plan = toy_plan({"k=1:3"});
    plan.experiment = &kNamed;
    plan.grid.base.set(std::string("rule=") + rule);
    const SweepOutcome outcome = run_sweep(plan, folder.path(), false, on_threads(1), {});
    CHECK(outcome.files == std::vector<std::string>{file, "sweep.json"});
    std::string text = read_file(folder.path() / file);
    for (std::int64_t point = 0; point < 3; ++point) {
      const std::string seed = std::to_string(plan.grid.at(point).seed);
      text.replace(text.find(seed), seed.size(), 1, 'S');
    }
    return text;
  };
  CHECK(csv_of("t", "t.csv") == "k,repeat,seed,x,y\n1,0,S,10,\n2,0,S,20,two\n3,0,S,30,\n");
  CHECK(csv_of("column", "toy.csv") ==
        "axis_k,repeat,seed,k,y\n1,0,S,10,\n2,0,S,20,two\n3,0,S,30,\n");
  CHECK_THROWS_WITH(csv_of("failures", ""),
                    contains("table name: expected") && contains("failures"));
  CHECK_THROWS_WITH(csv_of("../t", ""), contains("table name"));
}

/// Two tables, whose columns have names of the sweep's own, and an error with all that CSV quotes.
Results quoted(const RunContext& context) {
  const std::int64_t k = context.parameters.integer("k");
  require(k != 13, "k", "\"any\", but 13", "13");
  Table second("second", "The second", {{"x", "1", "an x"}});
  second.add_row({k * 100});
  Table first("first", "The first",
              {{"seed", "s", "its own"}, {"repeat", "", "its own too"}, {"a, b", "%", "c"}});
  for (const std::int64_t row : {1, 2})
    first.add_row({row, std::string("one, \"two\""), static_cast<double>(k)});
  Results results;
  results.tables = {second, first};
  return results;
}

const Experiment kQuoted{"toy", kToyToml, quoted};

TEST_CASE("the files of a sweep are what its points say, to the last field", "[sweep]") {
  using Json = nlohmann::ordered_json;
  const TemporaryFolder folder("tables");
  SweepPlan plan = toy_plan({"k=12:14", "rule=f,\"c d\""}, 2);
  plan.experiment = &kQuoted;
  plan.grid.seed = 9;
  plan.grid.base.set("gain=0.25");
  const SweepOutcome outcome = run_sweep(plan, folder.path(), false, on_threads(2), {});
  CHECK(outcome.files ==
        std::vector<std::string>{"first.csv", "second.csv", "failures.csv", "sweep.json"});
  CHECK(outcome.failed == 4);
  std::string first = "k,rule,axis_repeat,axis_seed,seed,repeat,\"a, b\"\n";
  std::string second = "k,rule,repeat,seed,x\n";
  std::string failures = "k,rule,repeat,seed,error\n";
  for (std::int64_t i = 0; i < plan.grid.size(); ++i) {
    const std::string k = std::to_string(12 + i / 4);
    const std::string point = k + (i / 2 % 2 == 0 ? ",f," : ",c d,") + std::to_string(i % 2) + "," +
                              std::to_string(plan.grid.at(i).seed) + ",";
    if (k == "13") {
      failures += point + "\"k: expected \"\"any\"\", but 13, got 13\"\n";
      continue;
    }
    for (const char* row : {"1", "2"}) first += point + row + ",\"one, \"\"two\"\"\"," + k + ".0\n";
    second += point + k + "00\n";
  }
  CHECK(read_file(folder / "first.csv") == first);
  CHECK(read_file(folder / "second.csv") == second);
  CHECK(read_file(folder / "failures.csv") == failures);

  const auto column = [](const char* name, const char* unit, const char* description) {
    return Json{{"name", name}, {"unit", unit}, {"description", description}};
  };
  const auto columns = [&](const char* repeat, const char* seed, const std::vector<Json>& own) {
    Json all = {column("k", "", "parameter k of the sweep"),
                column("rule", "", "parameter rule of the sweep"),
                column(repeat, "1", "which repeat of the same parameters, from 0"),
                column(seed, "1", "the seed of the point, with which it can be run alone")};
    for (const Json& one : own) all.push_back(one);
    return all;
  };
  const auto table = [](const char* name, const char* title, const std::string& csv, int rows,
                        const Json& of) {
    return Json{{"name", name},
                {"title", title},
                {"file", std::string(name) + ".csv"},
                {"crc32", crc32_text(csv)},
                {"rows", rows},
                {"columns", of}};
  };
  const Json tables = {
      table("first", "The first", first, 16,
            columns("axis_repeat", "axis_seed",
                    {column("seed", "s", "its own"), column("repeat", "", "its own too"),
                     column("a, b", "%", "c")})),
      table("second", "The second", second, 8,
            columns("repeat", "seed", {column("x", "1", "an x")})),
      table("failures", "Points that failed", failures, 4,
            columns("repeat", "seed", {column("error", "", "its message")}))};
  Json got = Json::parse(read_file(folder / "sweep.json"));
  CHECK(got["tables"].dump(1) == tables.dump(1));
  CHECK(got.erase("crc32") == 1);
  CHECK(got["sweep"].erase("version") == 1);
  got.erase("tables");
  const Json parameters{
      {"gain", "0.25"}, {"k", "4"}, {"rule", "\"floor\""}, {"tiles", "[16, 32, 64]"}};
  const Json sweep{{"experiment", "toy"},
                   {"quick", false},
                   {"seed", 9},
                   {"repeats", 2},
                   {"axes", {"k=12,13,14", "rule=f,c d"}},
                   {"parameters", parameters},
                   {"shard", "0/1"}};
  const Json rest{{"schema", "fp8lab.sweep.1"},
                  {"question", "?"},
                  {"sweep", sweep},
                  {"command",
                   "fp8lab sweep toy --set gain=0.25 --axis k=12,13,14 --axis "
                   "'rule=f,c d' --repeat 2 --seed 9"},
                  {"points", 12},
                  {"failed", 4},
                  {"files", outcome.files}};
  CHECK(got.dump(1) == rest.dump(1));
}

TEST_CASE("a sweep says what of its log was damaged, and shards have numbers of any length",
          "[sweep]") {
  const TemporaryFolder folder("damage");
  SweepPlan plan = toy_plan({"k=1:9", "gain=0.5,1,2"});
  plan.shard = {12, 25};
  const SweepPlan again = plan_of_identity(plan.identity(), find_toy);
  CHECK((again.shard.index == 12 && again.shard.count == 25));
  plan.shard = {};
  run_sweep(plan, folder.path(), false, on_threads(1), {});
  const std::filesystem::path path = folder.path() / "points.jsonl";
  const std::string whole = read_file(path);
  std::vector<std::size_t> starts;
  for (std::size_t at = whole.find("{\"point\""); at != std::string::npos;
       at = whole.find("{\"point\"", at + 1))
    starts.push_back(at);
  REQUIRE(starts.size() == 27);
  for (const std::size_t lines : {0U, 1U, 3U})
    for (const std::size_t torn : {0U, 5U, 60U}) {
      std::string text = torn == 0 ? whole : whole.substr(0, starts.back() + torn);
      for (std::size_t line = 0; line < lines; ++line) text[starts[4 * line + 2] + 3] = 'X';
      write_text(path, text);
      const SweepOutcome outcome = run_sweep(plan, folder.path(), true, on_threads(1), {});
      CAPTURE(lines, torn);
      CHECK(outcome.damage.damaged_lines == static_cast<std::int64_t>(lines));
      CHECK(outcome.damage.torn_bytes == static_cast<std::int64_t>(torn));
      CHECK(outcome.progress.resumed == static_cast<std::int64_t>(27 - lines - (torn > 0)));
      CHECK(outcome.progress.done == 27);
      CHECK(read_file(path) == whole);
    }
}

TEST_CASE("only shards of one sweep that hold all its points are merged", "[sweep]") {
  const TemporaryFolder folder("merge");
  SweepPlan plan = toy_plan({"k=1:5"});
  const auto shard = [&](std::int64_t index, std::uint64_t seed, const char* name) {
    SweepPlan part = plan;
    part.shard = {index, 2};
    part.grid.seed = seed;
    run_sweep(part, folder.path() / name, false, on_threads(1), {});
    return folder.path() / name;
  };
  const auto first = shard(0, 1, "a");
  const auto second = shard(1, 1, "b");
  const auto other = shard(1, 2, "c");
  const std::filesystem::path out = folder.path() / "out";
  CHECK_THROWS_WITH(merge_shards({}, out, find_toy), contains("shards: expected at least one"));
  CHECK_THROWS_WITH(merge_shards({first}, out, find_toy),
                    contains("shards: expected all points between them, got none with point 1"));
  CHECK_THROWS_WITH(merge_shards({second, second}, out, find_toy), contains("none with point 0"));
  CHECK_THROWS_WITH(merge_shards({first, other}, out, find_toy),
                    contains(other.string() + ": expected") && contains("\"seed\":2"));
  CHECK_FALSE(std::filesystem::exists(out));
  const SweepOutcome merged = merge_shards({second, first, second}, out, find_toy);
  CHECK((merged.progress.done == 5 && merged.progress.total == 5 && merged.failed == 0));
  CHECK_THROWS_AS(merge_shards({first, second}, out, find_toy), Error);  // never over another
}

}  // namespace
}  // namespace fp8lab
