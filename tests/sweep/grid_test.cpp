#include <set>
#include <tuple>

#include "catch.hpp"
#include "sweep/toy.hpp"

namespace fp8lab {
namespace {

std::vector<std::string> cells(const GridAxis& axis) {
  std::vector<std::string> texts;
  for (const AxisValue& value : axis.values) texts.push_back(to_csv(value.cell));
  return texts;
}

GridAxis axis(std::string_view spec) {
  return parse_axis(spec, Parameters::from_toml(kToyToml, false));
}

TEST_CASE("axes are values, ranges, or all of a list", "[sweep]") {
  using Texts = std::vector<std::string>;
  CHECK(cells(axis("k=512:16384:*2")) == Texts{"512", "1024", "2048", "4096", "8192", "16384"});
  CHECK(cells(axis("k=1:4")) == Texts{"1", "2", "3", "4"});
  CHECK(cells(axis("k=1:8:+3,100")) == Texts{"1", "4", "7", "100"});
  CHECK(cells(axis("k=9223372036854775800:9223372036854775807:+5")) ==
        Texts{"9223372036854775800", "9223372036854775805"});
  CHECK(cells(axis("gain=0.1:0.35:+0.1")) == Texts{"0.1", "0.2", "0.3"});
  CHECK(cells(axis("gain=0.1:0.8:+0.1")).back() == "0.8");
  // To 12 digits.
  CHECK(cells(axis("gain=1.0000001:1.0000003:+1e-7")) ==
        Texts{"1.0000001", "1.0000002", "1.0000003"});
  CHECK(cells(axis("gain=123456.25:123456.75:+0.25")) ==
        Texts{"123456.25", "123456.5", "123456.75"});
  CHECK(cells(axis("gain=1:1000:*10")) == Texts{"1.0", "10.0", "100.0", "1000.0"});
  CHECK(cells(axis("tiles=all")) == Texts{"16", "32", "64"});
  CHECK(cells(axis("rule=floor,ceil")) == Texts{"floor", "ceil"});
  CHECK(axis("tiles=8").values.front().toml == "[8]");
  CHECK(cells(axis("tiles=[16, 64],[32],8")) == Texts{R"("[16, 64]")", "[32]", "[8]"});
  CHECK(axis("tiles=[16, 64],[32],8").values.front().toml == "[16, 64]");
}

TEST_CASE("all of a list is each of its elements, to the last digit", "[sweep]") {
  const Parameters base = Parameters::from_toml(
      "shares = [0.123456789012345, 1e-07, 3.0, 1234567.25]\nsizes = [1, 123456789012]\n"
      "names = [\"a b\", \"c\"]",
      false);
  const GridAxis shares = parse_axis("shares=all", base);
  REQUIRE(shares.values.size() == 4);
  const std::vector<double> expected{0.123456789012345, 1e-07, 3.0, 1234567.25};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(shares.values[i].toml);
    CHECK(std::stod(to_csv(shares.values[i].cell)) == expected[i]);
    CHECK(std::stod(shares.values[i].toml.substr(1)) == expected[i]);
  }
  CHECK(parse_axis("sizes=all", base).values[1].toml == "[123456789012]");
  CHECK(parse_axis("names=all", base).values.size() == 2);
}

TEST_CASE("parts of models are axes", "[sweep]") {
  const Parameters base = Parameters::from_toml(
      "models = [\"exact\"]\nk = 1\n[range]\nmodels = \"1 to 4 of models\"", false);
  Grid grid{.experiment = "toy", .base = base, .axes = {}};
  // The model's own axis comes last here, and is still what the parts are set in.
  for (const char* spec : {"models.F=8:12:+2", "models.rounding=toward_zero,nearest_even",
                           "models=a=fused:F=1,M=3,exact"})
    grid.axes.push_back(parse_axis(spec, base));
  grid.validate();
  REQUIRE(grid.size() == 12);
  CHECK(cells(grid.axes[0]) == std::vector<std::string>{"8", "10", "12"});
  CHECK(std::get<std::int64_t>(grid.axes[0].values[1].cell) == 10);
  CHECK(cells(grid.axes[2]) == std::vector<std::string>{"\"a=fused:F=1,M=3\"", "exact"});
  CHECK(grid.at(0).parameters.texts("models") ==
        std::vector<std::string>{"a=fused:F=8,M=3,rounding=toward_zero"});
  CHECK(grid.at(11).parameters.texts("models") ==
        std::vector<std::string>{"exact:F=12,rounding=nearest_even"});
  // Numbers that only begin as integers stand as they were written.
  const GridAxis written = parse_axis("models.F=1.5,2k,3x1,-4,+5,6 ,7e1,007,8", base);
  CHECK(cells(written) ==
        std::vector<std::string>{"1.5", "2k", "3x1", "-4", "+5", "6", "7e1", "7", "8"});
  for (const char* spec : {"models.F=all", "models.F=", "models.F=1,1", "models.F=4:1", "k.F=1",
                           "none.F=1", "models.F=a b", "models.F=1:2:x"}) {
    CAPTURE(spec);
    CHECK_THROWS_AS(parse_axis(spec, base), Error);
  }
}

TEST_CASE("bad axes are refused by name", "[sweep]") {
  for (const char* spec : {"k", "k=", "m=1", "k=1.5", "k=4:1", "k=1:8:*1", "k=0:8:*2", "k=1:8:+0",
                           "k=1:x", "k=1,1", "k=all", "gain=1:inf", "k=1:8:-1", "k=1:100000000",
                           "k=,1", "tiles=[1,2", "tiles=[1],1", "k=[1]"}) {
    CAPTURE(spec);
    CHECK_THROWS_AS(axis(spec), Error);
  }
  for (const char* spec : {"k=0:8:*2", "k=-2:8:*2", "gain=0:8:*2", "gain=-0.5:8:*2", "k=1:8:*1",
                           "k=1:8:+0", "k=4:1"}) {
    CAPTURE(spec);
    CHECK_THROWS_WITH(axis(spec), contains("increasing from FIRST to LAST"));
  }
}

TEST_CASE("what is wrong with an axis is said word for word", "[sweep]") {
  struct Case {
    const char* spec;
    const char* message;
  };
  for (const Case& c :
       {Case{"k", "axis: expected KEY=VALUE,VALUE..., got 'k'"},
        Case{"k=", "axis: expected KEY=VALUE,VALUE..., got 'k='"},
        Case{"m=1", "axis: expected a parameter: gain, k, rule, tiles, got 'm'"},
        Case{"k=1,1", "axis k: expected each value once, got 1 twice"},
        Case{"k=1:3,5,2", "axis k: expected each value once, got 2 twice"},
        Case{"tiles=1,[1]", "axis tiles: expected each value once, got [1] twice"},
        Case{"k=all", "axis k: expected values (the default is not a list), got all"},
        Case{"k=1:x", "axis k: expected integers in a range, got 'x'"},
        Case{"k=1:8:+1.5", "axis k: expected integers in a range, got '1.5'"},
        Case{"k=1.5:8", "axis k: expected integers in a range, got '1.5'"},
        Case{"gain=1:2x", "axis gain: expected numbers in a range, got '2x'"},
        Case{"gain=1:inf",
             "axis gain: expected FIRST:LAST[:+STEP|:*FACTOR], increasing from FIRST to LAST, "
             "got '1:inf'"},
        Case{"k=1:8:*1",
             "axis k: expected FIRST:LAST[:+STEP|:*FACTOR], increasing from FIRST to LAST, got "
             "'1:8:*1'"},
        Case{"k=1:100000000", "axis k: expected at most 1000000 values, got '1:100000000'"},
        Case{"k=[1]", "set k: expected an integer, got '[1]'"}}) {
    CAPTURE(c.spec);
    CHECK_THROWS_WITH(axis(c.spec), c.message);
  }
}

TEST_CASE("an axis has a million values at most, and a range one at least", "[sweep]") {
  // One more than fits is refused by its number, far more by its length alone.
  for (const char* spec : {"k=1:1000001", "k=0:2000000:+2", "k=1:1000002", "k=-1:1000000",
                           "gain=0:0.5:+5e-7", "gain=0:1:+1e-9"}) {
    CAPTURE(spec);
    CHECK_THROWS_WITH(axis(spec), contains("expected at most 1000000 values"));
  }
  using Texts = std::vector<std::string>;
  CHECK(cells(axis("k=7:7")) == Texts{"7"});
  CHECK(cells(axis("k=7:7:*2")) == Texts{"7"});
  CHECK(cells(axis("gain=0.25:0.25")) == Texts{"0.25"});
  CHECK(cells(axis("gain=0.25:0.25:*3")) == Texts{"0.25"});
  CHECK(cells(axis("k=-3:-1")) == Texts{"-3", "-2", "-1"});
  CHECK(cells(axis("k=3:25:*3")) == Texts{"3", "9"});
  CHECK(cells(axis("k=3:27:*3")) == Texts{"3", "9", "27"});
  CHECK(cells(axis("k=1:7:+2")) == Texts{"1", "3", "5", "7"});
  CHECK(cells(axis("k=1:7:2")) == Texts{"1", "3", "5", "7"});
  CHECK(cells(axis("gain=0.3:8.1:*3")) == Texts{"0.3", "0.9", "2.7", "8.1"});
  // Products that are rounded up beyond the end reach it however large it is, others do not.
  for (const auto& [spec, count, last] :
       {std::tuple{"gain=0.1:1046035320.3:*3", 22U, "1046035320.3"},
        {"gain=1.1:310722773.9:*7", 11U, "310722773.9"},
        {"gain=1.1:310722773:*7", 10U, "44388967.7"},
        {"gain=0.7:593102026610:*3", 26U, "593102026610.0"},
        {"gain=0.7:593102020000:*3", 25U, "197700675537.0"}}) {
    CAPTURE(spec);
    CHECK(cells(axis(spec)).size() == count);
    CHECK(cells(axis(spec)).back() == last);
  }
  CHECK(cells(axis("gain=-1:1:+0.5")) == Texts{"-1.0", "-0.5", "0.0", "0.5", "1.0"});
  // Both ways of a grid's limit, on axes alone and with repeats.
  CHECK_NOTHROW(toy_plan({"k=1:32768", "gain=1:32768"}).grid.validate());
  CHECK(toy_plan({"k=1:32768", "gain=1:32768"}).grid.size() == std::int64_t{1} << 30);
  CHECK_THROWS_WITH(toy_plan({"k=1:32768", "gain=1:32769"}).grid.validate(),
                    "grid: expected at most 1073741824 points, got more");
  CHECK_THROWS_WITH(toy_plan({"k=1:32768", "gain=1:32768"}, 2).grid.validate(),
                    "repeat: expected at most 1, for 1073741824 points in all, got 2");
  CHECK_THROWS_WITH(toy_plan({"k=1"}, 0).grid.validate(), "repeat: expected at least 1, got 0");
  CHECK_THROWS_WITH(toy_plan({"k=1", "k=2"}).grid.validate(),
                    "axis: expected each parameter once, got k twice");
}

TEST_CASE("every point of a grid has its own values, repeats change first", "[sweep]") {
  const SweepPlan plan = toy_plan({"k=5,3", "rule=a,b,c", "gain=0.5,4"}, 3);
  REQUIRE(plan.grid.size() == 36);
  std::int64_t index = 0;
  for (const std::int64_t k : {5, 3})
    for (const char* rule : {"a", "b", "c"})
      for (const double gain : {0.5, 4.0})
        for (std::int64_t repeat = 0; repeat < 3; ++repeat) {
          const GridPoint point = plan.grid.at(index);
          CAPTURE(index);
          CHECK(point.index == index);
          CHECK(point.repeat == repeat);
          CHECK(point.parameters.integer("k") == k);
          CHECK(point.parameters.text("rule") == rule);
          CHECK(point.parameters.real("gain") == gain);
          CHECK(point.parameters.integers("tiles") == std::vector<std::int64_t>{16, 32, 64});
          CHECK(point.coordinates == std::vector<Cell>{k, std::string(rule), gain});
          ++index;
        }
  CHECK_THROWS_WITH(plan.grid.at(36), "point: expected 0 to 35, got 36");
  CHECK_THROWS_WITH(plan.grid.at(-1), "point: expected 0 to 35, got -1");
}

TEST_CASE("a point's seed is its own", "[sweep]") {
  const SweepPlan plan = toy_plan({"k=1:5", "rule=floor,ceil"}, 3);
  REQUIRE(plan.grid.size() == 30);
  std::set<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < 30; ++i) seeds.insert(plan.grid.at(i).seed);
  CHECK(seeds.size() == 30);

  // Other values, another order of axes and more repeats leave it alone.
  const SweepPlan other = toy_plan({"rule=even,ceil", "k=5,77"}, 9);
  const GridPoint here = plan.grid.at((4 * 2 + 1) * 3 + 2);
  const GridPoint there = other.grid.at((1 * 2 + 0) * 9 + 2);
  REQUIRE(here.parameters.to_toml("k") == there.parameters.to_toml("k"));
  REQUIRE(here.parameters.to_toml("rule") == there.parameters.to_toml("rule"));
  CHECK(here.seed == there.seed);

  SweepPlan reseeded = plan;
  reseeded.grid.seed = 2;
  CHECK(reseeded.grid.at(0).seed != plan.grid.at(0).seed);
}

TEST_CASE("a grid that cannot be is refused", "[sweep]") {
  CHECK_THROWS_AS(toy_plan({"k=1", "k=2"}).grid.validate(), Error);
  CHECK_THROWS_AS(toy_plan({}, 0).grid.validate(), Error);
  CHECK_THROWS_WITH(toy_plan({"k=1:40000", "gain=1:40000"}).grid.validate(),
                    "grid: expected at most 1073741824 points, got more");
  CHECK_THROWS_WITH(toy_plan({"k=1,2"}, 1'000'000'000'000).grid.validate(),
                    "repeat: expected at most 536870912, for 1073741824 points in all, "
                    "got 1000000000000");
  CHECK_NOTHROW(toy_plan({"k=1,2"}, std::int64_t{1} << 29).grid.validate());
  CHECK_THROWS_AS(toy_plan({"k=1,2"}, (std::int64_t{1} << 29) + 1).grid.validate(), Error);
  CHECK_THROWS_AS(toy_plan({}).grid.at(1), Error);
  for (const std::size_t at : {0U, 1U}) {
    Grid grid = toy_plan({"k=1,2", "gain=1"}).grid;
    CHECK_NOTHROW(grid.validate());
    grid.axes[at].values.clear();
    CHECK_THROWS_WITH(grid.validate(),
                      "axis " + grid.axes[at].key + ": expected at least one value, got none");
  }
}

TEST_CASE("the identity states the whole plan", "[sweep]") {
  SweepPlan plan = toy_plan({"k=1:5", "gain=0.25,1e-30", "tiles=all"}, 3);
  plan.grid.base.set("rule=a,b \"c\"");
  plan.shard = {1, 4};
  CHECK(plan_of_identity(plan.identity(), find_toy).identity() == plan.identity());
  CHECK_THROWS_AS(plan_of_identity("{}", find_toy), Error);
  CHECK(plan.points() == 23);
}

}  // namespace
}  // namespace fp8lab
