#include "fp8lab/train/trainer.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "catch.hpp"
#include "io/temporary.hpp"
#include "train/same_bits.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

std::shared_ptr<const DataSource> language(std::uint64_t seed = 1) {
  return synthetic_language({.vocabulary = 64}, seed);
}

/// A model of a few thousand parameters under a recipe with a past.
TrainerOptions small_options(std::string_view recipe = "te-delayed") {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = find_linear_recipe(recipe);
  options.sequences = 4;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 5, .steps = 40};
  return options;
}

std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

constexpr std::int64_t kSteps = 24;
constexpr std::int64_t kSaveEvery = 3;
constexpr const char* kWorkerFolder = "FP8LAB_TRAIN_WORKER";

}  // namespace

TEST_CASE("training learns: FP32 and FP8 runs end far below the first loss", "[train]") {
  for (const char* recipe : {"fp32", "te-current"}) {
    TrainerOptions options = small_options(recipe);
    options.schedule.peak = 1e-2;
    Trainer trainer(options, language());
    const double first = trainer.step({}).loss;
    double last = 0.0;
    for (int i = 1; i < 60; ++i) last = trainer.step({}).loss;
    INFO(recipe << ": " << first << " to " << last);
    CHECK(std::abs(first - std::log(64.0)) < 0.1);
    CHECK(last < first - 0.5);
  }
}

TEST_CASE("training gives the same bits for any thread count", "[train]") {
  Trainer one(small_options(), language());
  Trainer two(small_options(), language());
  for (int i = 0; i < 8; ++i) {
    const StepRecord a = one.step({});
    const StepRecord b = two.step({.threads = 2, .on_cast = {}});
    CHECK(a.loss == b.loss);
    CHECK(a.gradient_norm == b.gradient_norm);
  }
  CHECK(same_bits(weights_of(one), weights_of(two)));
}

TEST_CASE("a loss scale is a power of two and changes nothing that is exact", "[train]") {
  TrainerOptions options = small_options("fp32");
  Trainer plain(options, language());
  options.loss_scale = 1024.0;
  options.recipe.head = fp32_recipe();
  Trainer scaled(options, language());
  options.loss_scale = 1.0;
  Trainer unscaled(options, language());
  for (int i = 0; i < 4; ++i) {
    (void)scaled.step({});
    (void)unscaled.step({});
  }
  CHECK(same_bits(weights_of(scaled), weights_of(unscaled)));
  options.loss_scale = 3.0;
  CHECK_THROWS_WITH(Trainer(options, language()), contains("loss_scale") && contains("3"));
}

TEST_CASE("schedule: warm-up, cosine, floor", "[train]") {
  const Schedule s{.peak = 1.0, .warmup = 4, .steps = 14, .final_share = 0.25};
  CHECK(s.at(0) == 0.25);
  CHECK(s.at(3) == 1.0);
  CHECK(s.at(4) == 1.0);
  CHECK(std::abs(s.at(9) - 0.625) < 1e-12);
  CHECK(s.at(14) == 0.25);
  CHECK(s.at(100) == 0.25);
}

TEST_CASE("a checkpoint resumes to the same bits", "[train]") {
  const std::string recipe = GENERATE("te-delayed", "ms-amp", "torchao-rowwise");
  const TemporaryFolder folder("checkpoint");
  Trainer whole(small_options(recipe), language());
  Trainer first(small_options(recipe), language());
  for (int i = 0; i < 12; ++i) (void)whole.step({});
  for (int i = 0; i < 7; ++i) (void)first.step({});
  first.save(folder / "run.safetensors");
  Trainer second(small_options(recipe), language());
  second.resume(folder / "run.safetensors");
  CHECK(second.steps_done() == 7);
  while (second.steps_done() < 12) (void)second.step({});
  INFO(recipe);
  CHECK(same_bits(weights_of(second), weights_of(whole)));
}

TEST_CASE("a checkpoint of another run is refused", "[train]") {
  const TemporaryFolder folder("checkpoint_other");
  const auto path = folder / "run.safetensors";
  Trainer trainer(small_options(), language());
  (void)trainer.step({});
  trainer.save(path);
  Trainer other_recipe(small_options("te-current"), language());
  CHECK_THROWS_WITH(other_recipe.resume(path),
                    contains("run.safetensors") && contains("/options/blocks/activation"));
  Trainer other_data(small_options(), language(2));
  CHECK_THROWS_WITH(other_data.resume(path), contains("/data") && contains("seed 2"));
  Trainer same(small_options(), language());
  CHECK_THROWS_WITH(same.resume(folder / "none.safetensors"), contains("none.safetensors"));
  CHECK(folder.files() == 1);
}

// Runs in a process of its own, for the test below to kill: hidden from other runs.
TEST_CASE("worker of the kill test", "[.][train-worker]") {
  const char* folder = std::getenv(kWorkerFolder);
  REQUIRE(folder != nullptr);
  Trainer trainer(small_options(), language());
  while (trainer.steps_done() < 100000) {
    (void)trainer.step({});
    if (trainer.steps_done() % kSaveEvery == 0)
      trainer.save(std::filesystem::path(folder) / "run.safetensors");
  }
}

TEST_CASE("kill -9 and resume give the bits of a run that never stopped", "[train]") {
  const TemporaryFolder folder("killed");
  const auto checkpoint = folder / "run.safetensors";
  REQUIRE(::setenv(kWorkerFolder, folder.path().c_str(), 1) == 0);
  std::string program = "/proc/self/exe";
  std::string tag = "[train-worker]";
  char* const arguments[] = {program.data(), tag.data(), nullptr};
  pid_t worker = 0;
  REQUIRE(::posix_spawn(&worker, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  for (int i = 0; i < 12000 && !std::filesystem::exists(checkpoint); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(::kill(worker, SIGKILL) == 0);
  int status = 0;
  REQUIRE(::waitpid(worker, &status, 0) == worker);
  CHECK(WIFSIGNALED(status));

  Trainer resumed(small_options(), language());
  resumed.resume(checkpoint);
  CHECK(resumed.steps_done() % kSaveEvery == 0);
  const std::int64_t target = std::max(kSteps, resumed.steps_done() + 5);
  while (resumed.steps_done() < target) (void)resumed.step({});
  Trainer whole(small_options(), language());
  while (whole.steps_done() < target) (void)whole.step({});
  CHECK(same_bits(weights_of(resumed), weights_of(whole)));
}
