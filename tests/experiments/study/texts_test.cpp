// Texts of standings and intervals in each of their forms, and files of traces and tensors.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "common/names.hpp"
#include "common/spread.hpp"
#include "common/tensor_file.hpp"
#include "common/trace_file.hpp"
#include "cost/memory_gap.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "train/standing.hpp"

namespace fp8lab::experiments::texts_test {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

using Tails = std::vector<double>;

}  // namespace

TEST_CASE("a standing in words: whole, of runs that broke off in part, and of none",
          "[experiments]") {
  const Tails references{3.0, 4.0, 2.0};
  const Tails controls{3.0, 4.5, 1.5};  // a deviation of a half: a band of 5.73
  const auto said = [&](const Tails& gaps, const Tails& of_controls) {
    Tails tails;
    for (std::size_t i = 0; i < gaps.size(); ++i) tails.push_back(references[i] + gaps[i]);
    return text_of(judge_seeds(tails, references, of_controls, 0.02));
  };
  CHECK(said({1.0, 2.0, 3.0}, controls) == "+2.000 ± 11 nats (follows; band 5.7)");
  CHECK(said({-6.0, -7.0, -8.0}, controls) == "-7.000 ± 11 nats (ends lower; band 5.7)");
  CHECK(said({6.0, 7.0, 1.0}, controls) == "+4.667 ± 37 nats (cannot tell; band 5.7)");
  CHECK(said({6.0, kNoNumber, 7.25}, controls) ==
        "diverged in 1 of 3 seeds, the others +6.625 ± 69 nats (leaves; band 5.7)");
  CHECK(said({6.0, kEndless, -0.5}, controls) ==
        "diverged in 1 of 3 seeds, the others +2.750 ± 3.6e+02 nats (cannot tell; band 5.7)");
  CHECK(said({kNoNumber, kEndless, kNoNumber}, controls) ==
        "diverged in all 3 seeds (leaves; band 5.7)");
  // Without a control there is no band, and nothing to tell.
  CHECK(said({6.0, 7.0, 8.0}, {3.0, kNoNumber, 1.5}) == "+7.000 ± 11 nats (cannot tell; band nan)");
  const Judgement one = judge_seeds(Tails{9.0}, Tails{1.0}, Tails{1.0}, 0.02);
  CHECK(text_of(one) == "+8.000 nats (cannot tell; band 0)");
}

TEST_CASE("intervals of logarithms are of numbers above 0 alone", "[experiments]") {
  CHECK(log_interval_text(Tails{1.0, 4.0}) == "2 [1.29e-33, 3.1e+33]");
  CHECK(log_interval_text(Tails{0.0, 2.0}) == "1 ± 110");
  CHECK(log_interval_text(Tails{2.0, -2.0}, 10.0) == "0 ± 2200");
  CHECK(log_interval_text(Tails{1.0, kEndless}) == "inf");
  CHECK(log_interval_text(Tails{3.0}, 2.0) == "6");
}

TEST_CASE("formats and policies have names for people", "[experiments]") {
  std::string names;
  for (const Format& f : kFormats) names += short_name(f) + " ";
  for (const char* name : {"E4M3 ", "E5M2 ", "FP16 ", "FP32 ", "BF16 ", "E2M1 ", "E4M3FNUZ "})
    CHECK_THAT(names, contains(name));
  CHECK(subnormal_name(kNvidiaSatfinite) == "kept");
  CHECK(subnormal_name(kFlush) == "flushed");
  CHECK(subnormal_name(kSeedToy) == "raised");
  CHECK(plain_name("log_normal_2") == "log-normal-2");
}

TEST_CASE("files of traces: what each line may be, and where it may not", "[experiments]") {
  const TemporaryFolder folder("trace_lines");
  const auto read = [&](const std::string& text) {
    write_text(folder / "t.csv", text);
    std::string out;
    const std::string refusal = test::message_of(
        [&] {
          for (const float x : read_trace((folder / "t.csv").string()))
            out += fmt::format("{} ", x);
        },
        "");
    const std::size_t name = refusal.find("t.csv");
    return refusal.empty() ? out : name == std::string::npos ? refusal : refusal.substr(name);
  };
  const auto refused = [](int line, const std::string& text) {
    return fmt::format("t.csv:{}: expected a finite number >= 0, got '{}'", line, text);
  };
  CHECK(read("1\n2") == "1 2 ");
  CHECK(read("amax\n1\n2\n") == "1 2 ");
  CHECK(read("a,b\n9,0.5\n8,0\n") == "0.5 0 ");
  CHECK(read("7,1e3\n,2\n") == "1000 2 ");
  CHECK(read("amax\nsecond\n1\n2\n") == refused(2, "second"));
  CHECK(read("\n1\n2\n") == refused(1, ""));
  CHECK(read("1\n\n2\n") == refused(2, ""));
  CHECK(read("1\n2,\n") == refused(2, "2,"));
  CHECK(read("1\n3x\n") == refused(2, "3x"));
  CHECK(read("1\n2\n-0.5\n") == refused(3, "-0.5"));
  CHECK(read("-1\n2\n") == refused(1, "-1"));
  CHECK(read("1\ninf\n") == refused(2, "inf"));
  CHECK(read("1\nnan\n") == refused(2, "nan"));
  CHECK(read("1\n" + std::string(41, 'z') + "\n") == refused(2, std::string(40, 'z')));
  CHECK(read("4\n") == "file: expected at least 2 steps, got 1");
  CHECK(read("") == "file: expected at least 2 steps, got 0");
  const auto of_array = [&](const std::vector<float>& values) {
    const std::string path = (folder / "t.npy").string();
    write_npy(path, view_of(ElementType::f32, {static_cast<std::int64_t>(values.size())},
                            std::span<const float>(values)));
    const std::string said = test::message_of([&] { (void)read_trace(path); });
    return said.starts_with(path) ? said.substr(path.size()) : said;
  };
  CHECK(of_array({0.0F, 1.0F}) == "accepted");
  CHECK(of_array({1.0F}) == "file: expected at least 2 steps, got 1");
  CHECK(of_array({1.0F, 2.0F, -3.0F}) == ": element 2: expected a finite number >= 0, got '-3'");
  CHECK(of_array({std::numeric_limits<float>::infinity(), 2.0F}) ==
        ": element 0: expected a finite number >= 0, got 'inf'");
  CHECK(test::message_of([&] { (void)read_trace((folder / "none").string()); }) ==
        (folder / "none").string() + ": cannot be opened");
}

TEST_CASE("files of tensors: matrices with elements, by their names", "[experiments]") {
  const TemporaryFolder folder("matrices");
  std::vector<float> x(24);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto part = [&](std::vector<std::int64_t> shape, std::size_t first, std::size_t count) {
    return view_of(ElementType::f32, std::move(shape),
                   std::span<const float>(x).subspan(first, count));
  };
  const std::string path = (folder / "all.safetensors").string();
  write_safetensors(path, {{"cube", part({2, 2, 3}, 0, 12)},
                           {"none", part({0, 4}, 0, 0)},
                           {"tall", part({5, 2}, 3, 10)},
                           {"vector", part({6}, 0, 6)},
                           {"wide", part({2, 7}, 10, 14)}});
  std::string found;
  for (const NamedMatrix& m : read_matrices(path))
    found += fmt::format("{} {} {} {} {} {}; ", m.name, m.rows, m.columns, m.values.size(),
                         m.values.front(), m.values.back());
  CHECK(found == "tall 5 2 10 3 12; wide 2 7 14 10 23; ");
  const NamedMatrix cube = read_tensor("x", path, "cube");
  CHECK((cube.rows == 4 && cube.columns == 3 && cube.values.size() == 12));
  const auto said = [&](const char* name) {
    return test::message_of([&] { (void)read_tensor("bulk", path, name); });
  };
  const std::string names =
      "bulk: expected " + path + "#TENSOR with one of cube, tall, vector, wide";
  CHECK(said("") == names + ", got no name");
  CHECK(said("none") == names + ", got 'none'");
  const std::string flat = (folder / "flat.npy").string();
  write_npy(flat, part({24}, 0, 24));
  CHECK(test::message_of([&] { (void)read_matrices(flat); }) ==
        "file: expected at least one 2-D tensor with elements, got " + flat);
  CHECK(read_tensor("x", flat, "").name == "flat");
  x[2] = -std::numeric_limits<float>::infinity();
  x[4] = x[5] = std::numeric_limits<float>::quiet_NaN();
  write_npy(flat, part({4, 6}, 0, 24));
  CHECK(test::message_of([&] { (void)read_matrices(flat); }) ==
        "file: expected finite numbers in 'flat', got 2 NaN and 1 Inf of 24 elements");
}

TEST_CASE("recipes takes the matrices of a file, once", "[experiments]") {
  const TemporaryFolder folder("recipe-matrices");
  std::vector<float> x(96 * 32);
  const RandomStream random(3, "test/recipe matrices");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  const std::string path = (folder / "two.safetensors").string();
  write_safetensors(
      path, {{"tall", view_of(ElementType::f32, {96, 32}, std::span<const float>(x))},
             {"wide", view_of(ElementType::f32, {32, 64}, std::span<const float>(x).first(2048))}});
  const Results results = run_quick("recipes", 1,
                                    {"file=" + path, "recipes=te-delayed,te-current", "repeats=3",
                                     "read_rows=32", "read_columns=64", "read_window_kib=4"});
  const Table& errors = results.tables.front();
  // Two tensors and two recipes; a past that is the tensor itself gives the same scale.
  REQUIRE(errors.rows().size() == 4);
  for (std::size_t row = 0; row < 4; ++row) {
    CAPTURE(row);
    CHECK(to_csv(errors.rows()[row][0]) == (row < 2 ? "tall" : "wide"));
    CHECK(to_csv(errors.rows()[row][1]) == (row % 2 == 0 ? "te-delayed" : "te-current"));
    for (std::size_t c = 0; c < errors.columns().size(); ++c) {
      const std::string& name = errors.columns()[c].name;
      if (!name.ends_with("relative_l2") && name != "sqnr" && name != "underflow" &&
          name != "saturated" && name != "overflow")
        continue;
      INFO(name);
      CHECK(to_csv(errors.rows()[row][c]) == to_csv(errors.rows()[row / 2 * 2][c]));
    }
  }
  CHECK_THAT(results.findings.front(), contains("tall [96, 32]: ") && contains("over 1 draw)"));
  CHECK(results.heat_maps.front().columns.size() + results.heat_maps.front().rows.size() == 4);
}

TEST_CASE("published memory is told of the paper's models as the paper trains them",
          "[experiments]") {
  for (const char* model : {"13b"}) {
    const Table table = memory_gap_table(model);
    CAPTURE(model);
    REQUIRE(table.rows().size() == 2);
    for (const auto& row : table.rows()) CHECK(to_csv(row[0]) == model);
    TrainingSetup setup = find_training_setup(model);
    const auto cell = [&](std::size_t c) { return std::get<double>(table.rows()[1][c]); };
    CHECK(published_saving_text(setup) ==
          fmt::format(" (published: {:.1f} %; with the assumptions of memory_published: {:.1f} %)",
                      cell(10), cell(9)));
    setup.parallel.tensor *= 2;
    CHECK(published_saving_text(setup).empty());
  }
  CHECK(memory_gap_table("8b").rows().empty());
  CHECK(memory_gap_table().rows().size() == 6);
}

}  // namespace fp8lab::experiments::texts_test
