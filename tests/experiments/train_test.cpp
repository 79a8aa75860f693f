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

TEST_CASE("train: verdicts at their limits, over every stretch", "[experiments][train]") {
  StudySettings s;
  s.tail_share = 0.2;
  s.follow_nats = 0.5;
  s.diverge_nats = 0.25;
  const std::vector<double> reference = level(2.0, 50);
  CHECK(judge(s, level(2.5, 50), reference) == Outcome::follows);
  CHECK(judge(s, level(2.5 + 0x1p-20, 50), reference) == Outcome::stalls);
  // The tail is the last ten: what is before it does not count for the gap.
  std::vector<double> late = level(9.0, 50);
  for (std::size_t i = 40; i < 50; ++i) late[i] = 2.5;
  CHECK(judge(s, late, reference) == Outcome::follows);
  late[39] = late[40] = 7.5;
  CHECK(judge(s, late, reference) == Outcome::stalls);
  for (std::size_t stretch = 0; stretch < 4; ++stretch) {
    INFO("stretch " << stretch);
    std::vector<double> losses = level(4.0, 50);
    for (std::size_t i = 10 * stretch; i < 10 * stretch + 10; ++i) losses[i] = 3.75;
    CHECK(judge(s, losses, reference) == Outcome::stalls);
    losses[10 * stretch] -= 0x1p-10;
    CHECK(judge(s, losses, reference) == Outcome::diverges);
  }
  // Of 47 steps the tail is nine; a run shorter than five still has one.
  std::vector<double> odd = level(9.0, 47);
  for (std::size_t i = 38; i < 47; ++i) odd[i] = 2.5;
  CHECK(judge(s, odd, level(2.0, 47)) == Outcome::follows);
  odd[38] = 2.75;
  CHECK(judge(s, odd, level(2.0, 47)) == Outcome::stalls);
  CHECK(tail_loss(s, {5.0, 6.0, 7.0}) == 7.0);
  CHECK(judge(s, {9.0, 9.0, 2.5}, {9.0, 9.0, 2.0}) == Outcome::follows);
}
