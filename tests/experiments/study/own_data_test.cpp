// Experiments on tensors of one's own: named distributions and files.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "auto-scaling/reduction.hpp"
#include "catch.hpp"
#include "common/tensor_source.hpp"
#include "common/tensors.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const RandomStream kRandom(1, "own data");

double moment(const std::vector<float>& x, int power) {
  double sum = 0.0;
  for (const float v : x) sum += std::pow(static_cast<double>(v), power);
  return sum / static_cast<double>(x.size());
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i + 1);
  return x;
}

}  // namespace

TEST_CASE("named distributions have the moments that they should", "[experiments]") {
  const auto draw = [](const char* text) {
    return TensorSource("x", text).draw(kRandom, 64, 1024);
  };
  CHECK(std::abs(moment(draw("normal"), 2) - 1.0) < 0.02);
  CHECK(std::abs(moment(draw("normal"), 4) - 3.0) < 0.15);
  CHECK(std::abs(moment(draw("laplace"), 1)) < 0.02);
  CHECK(std::abs(moment(draw("laplace"), 2) - 1.0) < 0.03);
  CHECK(std::abs(moment(draw("laplace"), 4) - 6.0) < 0.6);  // kurtosis 6
  CHECK(std::abs(moment(draw("student_t:10"), 2) - 10.0 / 8.0) < 0.05);
  CHECK(std::abs(moment(draw("uniform"), 1) - 0.5) < 0.01);
  const std::vector<float> channels = draw("outlier_channels:60");
  CHECK(std::count_if(channels.begin(), channels.end(),
                      [](float v) { return std::abs(v) > 20.0F; }) > 64 * 3);
  std::vector<float> scaled = draw("log_normal:6");
  normalize_rms(scaled, 0.25);
  CHECK(std::abs(std::sqrt(moment(scaled, 2)) - 0.25) < 1e-6);
}

TEST_CASE("tensors with few columns have as many outlier channels as fit", "[experiments]") {
  const std::size_t usual = OutlierChannels{}.outlier_channels;
  for (std::size_t columns = 1; columns < 8; ++columns) {
    INFO(columns << " columns");
    CHECK(TensorSource("x", "outlier_channels:60").draw(kRandom, 16, columns) ==
          outlier_channels(kRandom, {.rows = 16,
                                     .channels = columns,
                                     .outlier_channels = std::min(usual, columns),
                                     .magnitude = 60.0}));
  }
}

TEST_CASE("windows of a file hold its neighbours", "[experiments]") {
  const TemporaryFolder folder("own-data");
  const std::vector<float> values = counted(40 * 10);
  const std::filesystem::path path = folder.path() / "x.npy";
  write_npy(path, view_of<float>(ElementType::f32, {40, 10}, values));
  const TensorSource source("file", path.string());
  const std::vector<float> x = source.draw(kRandom, 7, 4);
  for (std::size_t r = 0; r < 7; ++r)
    for (std::size_t c = 0; c < 4; ++c) {
      const auto first = static_cast<int>(x[0]) - 1;
      const int row = (first / 10 + static_cast<int>(r)) % 40;
      const int column = (first % 10 + static_cast<int>(c)) % 10;
      CHECK(x[r * 4 + c] == static_cast<float>(row * 10 + column + 1));
    }
  CHECK(source.draw(RandomStream(1, "other"), 7, 4) != x);
  // Wider than the file: its elements one after the other.
  const std::vector<float> wide = source.draw(kRandom, 1, 400);
  for (std::size_t i = 1; i < wide.size(); ++i)
    CHECK((wide[i] == wide[i - 1] + 1.0F || (wide[i - 1] == 400.0F && wide[i] == 1.0F)));
  CHECK_THROWS_WITH(source.draw(kRandom, 1, 401), contains("at least 401 elements"));
}

TEST_CASE("a file's tensor may have any shape: all but its last dimension are rows",
          "[experiments]") {
  const TemporaryFolder folder("own-data");
  const std::vector<float> values = counted(24);
  const std::filesystem::path path = folder.path() / "shapes.safetensors";
  write_safetensors(path, {{"vector", view_of<float>(ElementType::f32, {24}, values)},
                           {"batched", view_of<float>(ElementType::f32, {2, 3, 4}, values)},
                           {"scalar", view_of<float>(ElementType::f32, {}, {values.data(), 1})}});
  const auto draw = [&](const char* name, std::size_t rows, std::size_t columns) {
    return TensorSource("bulk", path.string() + "#" + name).draw(kRandom, rows, columns);
  };
  const std::vector<float> row = draw("vector", 1, 5);
  for (std::size_t i = 1; i < row.size(); ++i)
    CHECK((row[i] == row[i - 1] + 1.0F || (row[i - 1] == 24.0F && row[i] == 1.0F)));
  const std::vector<float> column = draw("batched", 6, 1);  // six rows of four
  for (std::size_t i = 1; i < column.size(); ++i)
    CHECK((column[i] == column[i - 1] + 4.0F || column[i] == column[i - 1] - 20.0F));
  CHECK(draw("scalar", 1, 1) == std::vector<float>{1.0F});
}

TEST_CASE("sources take a parameter at both ends of its range, and nothing beyond",
          "[experiments]") {
  struct Range {
    const char* kind;
    std::vector<const char*> taken;
    std::vector<const char*> refused;
  };
  const std::vector<Range> ranges{
      {"student_t", {"1", "1000"}, {"0", "1001", "-1", "nan", "inf"}},
      {"log_uniform", {"0.1", "30"}, {"0.0999999", "30.00001", "-0.1", "nan", "inf"}},
      {"log_normal", {"0.1", "30"}, {"0.0999999", "30.00001", "-0.1", "nan", "inf"}},
      {"outlier_channels", {"1", "1e9"}, {"0.9999999", "1.0000001e9", "-1", "nan", "inf"}}};
  for (const Range& range : ranges) {
    const auto text = [&](const char* value) { return fmt::format("{}:{}", range.kind, value); };
    for (const char* value : range.taken) {
      CAPTURE(text(value));
      CHECK(TensorSource("bulk", text(value)).draw(kRandom, 1, 16).size() == 16);
    }
    for (const char* value : range.refused) {
      CAPTURE(text(value));
      CHECK_THROWS_WITH(TensorSource("bulk", text(value)),
                        contains(fmt::format("{}:NUMBER from {} to {:g}", range.kind,
                                             range.taken.front(), std::stod(range.taken.back()))));
    }
    CHECK_THROWS_WITH(TensorSource("bulk", text("2x")), contains("NUMBER"));
    CHECK_THROWS_WITH(TensorSource("bulk", text("")), contains("NUMBER"));
    CHECK_THROWS_WITH(TensorSource("bulk", range.kind), contains("FILE.npy"));
  }
}

TEST_CASE("sources refuse what they do not know", "[experiments]") {
  const auto refuse = [](const char* text, const char* part) {
    CHECK_THROWS_WITH(TensorSource("bulk", text), contains("bulk: ") && contains(part));
  };
  refuse("gauss", "normal, uniform, laplace");
  refuse("normal:3", "normal, uniform, laplace");
  refuse("student_t", "student_t:DEGREES");
  refuse("student_t:0", "from 1 to 1000");
  refuse("student_t:2.5", "an integer");
  refuse("log_normal:x", "from 0.1 to 30");
  CHECK_THROWS_AS(TensorSource("bulk", "none.npy"), Error);
  const TemporaryFolder folder("own-data");
  const std::vector<float> values = counted(4);
  const std::filesystem::path path = folder.path() / "two.safetensors";
  write_safetensors(path, {{"a", view_of<float>(ElementType::f32, {2, 2}, values)},
                           {"b", view_of<float>(ElementType::f32, {4, 1}, values)}});
  CHECK_THROWS_WITH(TensorSource("bulk", path.string()), contains("one of a, b"));
  CHECK(TensorSource("bulk", path.string() + "#b").draw(kRandom, 4, 1).size() == 4);
}

TEST_CASE("int8-vs-fp8 takes the matrices of a file", "[experiments]") {
  const TemporaryFolder folder("own-matrices");
  const std::vector<float> values = counted(64);
  const std::filesystem::path path = folder.path() / "two.safetensors";
  write_safetensors(path, {{"wide", view_of<float>(ElementType::f32, {2, 32}, values)},
                           {"tall", view_of<float>(ElementType::f32, {16, 4}, values)}});
  const Results results =
      run_quick("int8-vs-fp8", 1, {"file=" + path.string(), "published_elements=200"});
  const Table& table = table_named(results, "sqnr");
  std::set<std::string> tensors;
  for (const std::vector<Cell>& row : table.rows()) tensors.insert(std::get<std::string>(row[0]));
  CHECK(tensors == std::set<std::string>{"tall", "wide"});
}

TEST_CASE("auto-scaling takes the gradients of a file, a row a rank", "[experiments]") {
  const TemporaryFolder folder("own-gradients");
  const std::string path = (folder / "gradients.npy").string();
  // What the experiment draws, in a file of 3 ranks and 40 elements.
  const Gradients drawn({7, "auto-scaling/dynamics"}, {40, 4.0, 1.5}, 3);
  std::vector<float> values;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    values.insert(values.end(), drawn.of_rank(rank).begin(), drawn.of_rank(rank).end());
  write_npy(path, view_of<float>(ElementType::f32, {3, 40}, values));
  const auto run = [&](const std::string& change) {
    return run_quick("auto-scaling", 1,
                     {"elements=40", "decades=4", "noise_to_signal=1.5", "ranks=2", "repeats=1",
                      "settle_steps=2", "steps=30", "spike_period=7", "dynamics_ranks=3",
                      "dynamics_elements=40", change});
  };
  const Results of_file = run("gradients=" + path);
  // Drawn ones of the same amax are the same, whatever parameters of a draw say beside a file.
  const Results of_draw = run(fmt::format("amax={}", static_cast<double>(drawn.amax())));
  CHECK(table_named(of_file, "dynamics").csv() == table_named(of_draw, "dynamics").csv());
  CHECK(table_named(of_file, "dynamics").csv() != table_named(run("amax=2"), "dynamics").csv());
  CHECK(of_file.findings == of_draw.findings);
  CHECK(run_quick("auto-scaling", 1,
                  {"elements=40", "decades=4", "noise_to_signal=1.5", "ranks=2", "repeats=1",
                   "settle_steps=2", "steps=30", "spike_period=7", "dynamics_ranks=5",
                   "dynamics_elements=11", "gradients=" + path})
            .findings == of_draw.findings);
}

TEST_CASE("the four experiments run on other tensors, and tell where they come from",
          "[experiments]") {
  const SweepShare share;
  std::uint64_t number = 0;
  const auto taken = [&] {
    return share.takes_one_in(4, "experiments on other tensors", number++);
  };
  // With another tensor than under the other changes alone, which make the runs short.
  const auto findings = [](const char* name, std::vector<std::string> changes,
                           const std::vector<std::string>& shorter = {}) {
    changes.insert(changes.end(), shorter.begin(), shorter.end());
    const Results one = run_quick(name, 1, changes);
    CHECK(all_csv(one) == all_csv(run_quick(name, 2, changes)));
    CHECK(all_csv(one) != all_csv(run_quick(name, 2, shorter)));
    std::string text;
    for (const std::string& finding : one.findings) text += finding + "\n";
    for (const Table& table : one.tables) text += table.title() + "\n" + table.csv();
    return text;
  };
  if (taken()) CHECK(contains("student_t:4").match(findings("outlier", {"bulk=student_t:4"})));
  if (taken())
    CHECK(contains("laplace").match(
        findings("dynamic-range", {"distributions=laplace,log_normal"}, {"scales_per_decade=1"})));
  if (taken())
    CHECK(contains("Gradients are laplace")
              .match(findings("format-asymmetry", {"gradients=laplace"}, {"tensor_repeats=2"})));
  if (taken())
    CHECK(contains("own").match(
        findings("accumulator-drift", {"distributions=own", "own_a=log_normal:4"},
                 {"k=512,1024", "promotion_k=512", "bf16_k=128,256", "fit_repeats=2"})));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, {"own_a=normal"}),
                    contains("none unless distributions contains own"));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, {"distributions=own"}), contains("own_a"));
  CHECK_THROWS_WITH(run_quick("outlier", 1, {"bulk=gauss"}), contains("bulk"));
}
