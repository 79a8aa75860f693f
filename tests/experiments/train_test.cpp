#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "train/study.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const std::vector<std::string> kSmall{"variants=bf16,unscaled-e4m3,te-current+outliers",
                                      "seeds=1",
                                      "steps=8",
                                      "warmup=2",
                                      "width=32",
                                      "hidden=32",
                                      "length=16",
                                      "underflow_log2=-8"};

std::vector<double> level(double value, std::size_t steps) {
  return std::vector<double>(steps, value);
}

}  // namespace

TEST_CASE("train: the same bits for any thread count, another run for another seed",
          "[experiments][train]") {
  const Results one = run_quick("train", 1, kSmall);
  CHECK(all_csv(one) == all_csv(run_quick("train", 2, kSmall)));
  CHECK(!one.findings.empty());
  CHECK(!one.plots.empty());
  const Table& verdicts = table_named(one, "verdicts");
  REQUIRE(verdicts.rows().size() == 3);
  // The reference is no further from itself than nothing.
  CHECK(std::get<double>(verdicts.rows()[0][3]) == 0.0);
  // Without a scale E4M3 gradients vanish, with one they do not.
  CHECK(std::get<double>(verdicts.rows()[1][7]) > 20.0);
  CHECK(std::get<double>(verdicts.rows()[2][7]) < 5.0);
}

TEST_CASE("train: refuses what it does not know", "[experiments][train]") {
  CHECK_THROWS_WITH(run_quick("train", 1, {"variants=bf16,te-curent"}), contains("'te-curent'"));
  CHECK_THROWS_WITH(run_quick("train", 1, {"ladders=wobbly"}), contains("'wobbly'"));
  CHECK_THROWS_WITH(run_quick("train", 1, {"steps=0"}), contains("steps"));
  CHECK_THROWS_WITH(run_quick("train", 1, {"text=none.txt"}), contains("none.txt"));
}

TEST_CASE("train: verdicts", "[experiments][train]") {
  const StudySettings s;  // tail 20 %, follows up to 0.02, diverges above 0.2
  const std::vector<double> reference = level(3.0, 50);
  CHECK(judge(s, level(3.01, 50), reference) == Outcome::follows);
  CHECK(judge(s, level(2.0, 50), reference) == Outcome::follows);
  CHECK(judge(s, level(3.1, 50), reference) == Outcome::stalls);
  std::vector<double> rising = level(3.1, 50);
  for (std::size_t i = 30; i < 50; ++i) rising[i] = 3.5;
  CHECK(judge(s, rising, reference) == Outcome::diverges);
  std::vector<double> broken = level(3.0, 50);
  broken.back() = std::numeric_limits<double>::quiet_NaN();
  CHECK(judge(s, broken, reference) == Outcome::diverges);
}

TEST_CASE("train: one seed decides what is said of all", "[experiments][train]") {
  CHECK(worst({3, 0, 0}) == Outcome::follows);
  CHECK(worst({2, 1, 0}) == Outcome::stalls);
  CHECK(worst({0, 2, 1}) == Outcome::diverges);
  CHECK(worst({2, 0, 1}) == Outcome::diverges);
}
