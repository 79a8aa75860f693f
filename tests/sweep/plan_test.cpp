// What a sweep's plan says of its points, and what a folder holds of an earlier sweep.

#include <set>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
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

}  // namespace
}  // namespace fp8lab
