#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "auto-scaling/reduction.hpp"
#include "catch.hpp"
#include "claims/claim.hpp"
#include "common/trace_file.hpp"
#include "delayed-dynamics/dynamics.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

TEST_CASE("scaling experiments give the same bits for any thread count", "[experiments]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs{
      {"recipes", {"rows=128", "columns=128", "past_steps=2"}},
      {"delayed-dynamics", {"steps=100", "elements=32", "period=20"}},
      {"int8-vs-fp8", {"elements=500", "clip_octaves=1", "published_elements=200"}},
      {"inference-linear",
       {"tokens=8", "inputs=128", "outputs=16", "calibration_batches=[1, 3]", "test_batches=1"}},
      {"auto-scaling", {"elements=64", "ranks=[2, 8]", "steps=50", "dynamics_elements=64"}}};
  for (const auto& [name, changes] : runs) {
    const Results one = run_quick(name, 1, changes);
    INFO(name);
    CHECK(all_csv(one) == all_csv(run_quick(name, 3, changes)));
    CHECK(!one.findings.empty());
    CHECK(one.plots.size() + one.heat_maps.size() > 0);
  }
}

TEST_CASE("recipes: refuses what it does not know", "[experiments]") {
  CHECK_THROWS_WITH(run_quick("recipes", 1, {"recipes=te-curent"}), contains("'te-curent'"));
  CHECK_THROWS_WITH(run_quick("recipes", 1, {"tensors=cauchy"}), contains("'cauchy'"));
  CHECK_THROWS_WITH(run_quick("recipes", 1, {"file=none.npy"}), contains("none.npy"));
  // A tile that does not divide k is reported in the table, not fatal to the others.
  const Results results =
      run_quick("recipes", 1, {"columns=100", "recipes=te-mxfp8,te-current", "tensors=normal"});
  const Table& table = results.tables.front();
  CHECK(std::get<std::string>(table.rows()[0].back()) != "");
  CHECK(std::get<std::string>(table.rows()[1].back()) == "");
}

TEST_CASE("delayed-dynamics: a spike overflows once and wastes range for the history",
          "[experiments]") {
  std::vector<float> trace(40, 1.0F);
  trace[10] = 16.0F;
  const std::vector<StepLoss> losses =
      run_trace({false, {.history = 4}}, format(FormatId::e4m3fn), trace, {1.0F, 0.25F});
  CHECK(losses[10].overflow_percent == 100.0);  // 448 * 16 / 4 overflows as well
  for (std::size_t step = 1; step < trace.size(); ++step) {
    INFO("step " << step);
    const double expected = step == 10 ? -4.0 : (step > 10 && step <= 14 ? 4.0 : 0.0);
    CHECK(losses[step].wasted_octaves == expected);
    if (step != 10) CHECK(losses[step].overflow_percent == 0.0);
  }
}

TEST_CASE("delayed-dynamics: traces come from files too", "[experiments]") {
  const TemporaryFolder folder("trace");
  write_text(folder / "ok.txt", "1\n2.5\n0\n");
  CHECK(read_trace(folder / "ok.txt") == std::vector<float>{1.0F, 2.5F, 0.0F});
  write_text(folder / "bad.txt", "1\n-2\n");
  CHECK_THROWS_WITH(read_trace(folder / "bad.txt"), contains("bad.txt:2") && contains("-2"));
  write_text(folder / "table.csv", "step,amax\n0,1\n1,0.5\n");
  CHECK(read_trace(folder / "table.csv") == std::vector<float>{1.0F, 0.5F});
  write_text(folder / "short.csv", "amax\n1\n");
  CHECK_THROWS_WITH(read_trace(folder / "short.csv"), contains("at least 2 steps, got 1"));
  const std::vector<float> amaxes{2.0F, 8.0F, 4.0F};
  write_npy(folder / "amax.npy", view_of(ElementType::f32, {3}, std::span<const float>(amaxes)));
  CHECK(read_trace(folder / "amax.npy") == amaxes);
  const std::string file = "file=" + (folder / "amax.npy").string();
  CHECK(run_quick("delayed-dynamics", 1, {file, "elements=32"}).plots.size() == 1);
  const Results gradients =
      run_quick("auto-scaling", 1, {file, "elements=64", "ranks=[2]", "dynamics_elements=64"});
  CHECK(gradients.plots.back().series.back().y == std::vector<double>{1.0, 0.25, 0.5});
  CHECK_THROWS_WITH(make_trace({1, "t"}, "staircase", {}), contains("'staircase'"));
}

TEST_CASE("auto-scaling: a ring sum rounds at every hop", "[experiments]") {
  const Format& f = format(FormatId::e4m3fn);
  const Gradients gradients({3, "ring"}, {.elements = 64}, 5);
  const std::vector<std::uint8_t> codes = ring_sum(gradients, 7.0, f).codes;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    // Both summands are FP8, so that FP16 rounds only what FP8 rounds again.
    double sum = 0.0;
    for (std::int64_t r = 0; r < gradients.ranks(); ++r) {
      sum += decode(f, encode(f, kNvidiaSatfinite, gradients.of_rank(r)[i] * 7.0F));
      const Format& half = format(FormatId::f16);
      const double hop = decode(half, encode(half, kNvidiaNosat, static_cast<float>(sum)));
      sum = decode(f, encode(f, kNvidiaSatfinite, static_cast<float>(hop)));
    }
    INFO("element " << i);
    CHECK(decode(f, codes[i]) == sum);
  }
}

TEST_CASE("verdicts about scaling stay as measured for other seeds", "[experiments]") {
  using enum Verdict;
  const std::vector<std::pair<const char*, Verdict>> expected{
      {"S1", holds_with_correction}, {"S7", holds},          {"A2", does_not_hold},
      {"A3", holds_with_correction}, {"A4", does_not_hold},  {"A8", does_not_hold},
      {"S2", does_not_hold},         {"S3", does_not_hold},  {"S4", holds_with_correction},
      {"S5", holds_with_correction}, {"S6", does_not_hold},  {"S8", does_not_hold},
      {"S9", holds_with_correction}, {"S10", does_not_hold}, {"S12", holds_with_correction}};
  const std::uint64_t seed = static_cast<std::uint64_t>(GENERATE(1, 2));
  for (const auto& [id, verdict] : expected) {
    const Measurement measured = measure(find_claim(id), {.seed = seed, .threads = 1});
    INFO(id << ", seed " << seed << ": " << measured.figure);
    CHECK(to_string(measured.verdict) == to_string(verdict));
  }
}
