// Data-parallel runs that stop and go on, and that a guard takes back.

#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "io/temporary.hpp"
#include "train/same_bits.hpp"
#include "training/train/guard.hpp"
#include "training/train/parallel_trainer.hpp"
#include "training/train/systems.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

/// Three ranks of FP8-LM's wires and states, with amaxes that each rank remembers.
struct Setup {
  TrainerOptions trainer;
  ParallelOptions parallel;
  std::shared_ptr<const DataSource> data = synthetic_language({.vocabulary = 64}, 1);

  explicit Setup(bool zero) {
    const TrainingSystem& system = find_training_system("fp8-lm", "system");
    trainer.model = TransformerShape{
        .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
    trainer.recipe.blocks = find_linear_recipe("te-delayed");
    trainer.sequences = 2;
    trainer.length = 16;
    trainer.schedule = {.peak = 3e-3, .warmup = 2, .steps = 10};
    trainer.optimizer = system.optimizer;
    parallel = {system.reduction, zero};
    parallel.reduction.ranks = 3;
  }
  [[nodiscard]] ParallelTrainer make() const {
    return {in_process_fabric(), trainer, data, parallel};
  }
};

/// Everything that can differ: weights of the first rank, and mu.
std::vector<float> state_of(ParallelTrainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.first().model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  for (const AutoScaler& scaler : trainer.reducer().scalers())
    all.push_back(static_cast<float>(scaler.mu()));
  return all;
}

std::vector<float> after(ParallelTrainer& trainer, int steps) {
  while (trainer.steps_done() < steps) (void)trainer.step({.threads = 1, .on_cast = {}}, false);
  return state_of(trainer);
}

}  // namespace

TEST_CASE("ranks go on from a checkpoint to the bits of a run that never stopped", "[train]") {
  const TemporaryFolder folder("parallel-resume");
  const std::filesystem::path file = folder.path() / "ranks.safetensors";
  for (const bool zero : {false, true}) {
    INFO("ZeRO: " << zero);
    const Setup setup(zero);
    ParallelTrainer whole = setup.make();
    const std::vector<float> expected = after(whole, 8);
    ParallelTrainer stopped = setup.make();
    const std::vector<float> middle = after(stopped, 4);
    CHECK_FALSE(same_bits(middle, expected));
    stopped.save(file);
    ParallelTrainer resumed = setup.make();
    resumed.resume(file);
    CHECK(resumed.steps_done() == 4);
    CHECK(same_bits(state_of(resumed), middle));
    CHECK(same_bits(after(resumed, 8), expected));
  }
}

TEST_CASE("a checkpoint of ranks has every count of every scaler", "[train]") {
  const TemporaryFolder folder("parallel-scalers");
  const std::filesystem::path file = folder.path() / "ranks.safetensors";
  Setup setup(false);
  // Growth waits for two clean steps, so that the two counts of a scaler differ.
  setup.parallel.reduction.auto_scaling = {
      .threshold = 1.0, .steps_to_double = 3, .clean_steps = 3, .growth = GrowthLaw::linear};
  ParallelTrainer stopped = setup.make();
  (void)after(stopped, 4);
  stopped.save(file);
  ParallelTrainer resumed = setup.make();
  resumed.resume(file);
  const auto& expected = stopped.reducer().scalers();
  const auto& got = resumed.reducer().scalers();
  REQUIRE(got.size() == expected.size());
  REQUIRE_FALSE(got.empty());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const AutoScaler::State a = expected[i].state();
    const AutoScaler::State b = got[i].state();
    INFO("tensor " << i);
    CHECK((a.clean == 4 && a.counted == 2));
    CHECK(b.mu == a.mu);
    CHECK(b.base == a.base);
    CHECK(b.clean == a.clean);
    CHECK(b.counted == a.counted);
  }
}

TEST_CASE("a checkpoint of ranks is refused where the run is another one", "[train]") {
  const TemporaryFolder folder("parallel-refused");
  const std::filesystem::path file = folder.path() / "ranks.safetensors";
  const Setup setup(true);
  ParallelTrainer trainer = setup.make();
  (void)after(trainer, 1);
  trainer.save(file);
  Setup other = setup;
  other.parallel.reduction.ranks = 2;
  CHECK_THROWS_WITH(other.make().resume(file), contains("/ranks/count"));
  other = setup;
  other.parallel.reduction.auto_scaling.threshold = 0.5;
  CHECK_THROWS_WITH(other.make().resume(file), contains("/ranks/mu"));
  const auto refused = [&](const char* part, auto change) {
    Setup changed = setup;
    change(changed.parallel);
    CHECK_THROWS_WITH(changed.make().resume(file), contains(part));
  };
  using Options = ParallelOptions;
  refused("/ranks/topology", [](Options& o) { o.reduction.topology = Topology::tree; });
  refused("/ranks/wire", [](Options& o) { o.reduction.wire = find_wire_format("e5m2"); });
  refused("/ranks/scaling", [](Options& o) { o.reduction.scaling = GradientScaling::post; });
  refused("/ranks/whole_tensor_zero", [](Options& o) { o.whole_tensor_zero = false; });
  refused("/ranks/mu/1", [](Options& o) { ++o.reduction.auto_scaling.steps_to_double; });
  refused("/ranks/mu/2", [](Options& o) { ++o.reduction.auto_scaling.clean_steps; });
  refused("/ranks/mu/3", [](Options& o) { o.reduction.auto_scaling.growth = GrowthLaw::none; });
  CHECK_NOTHROW(setup.make().resume(file));
  CHECK_THROWS_WITH(Trainer(setup.trainer, setup.data).resume(file), contains("ranks.safetensors"));
}

TEST_CASE("a guard takes all ranks back, and the fault leaves no bit", "[train]") {
  for (const bool zero : {false, true}) {
    INFO("ZeRO: " << zero);
    const Setup setup(zero);
    ParallelTrainer whole = setup.make();
    const std::vector<float> expected = after(whole, 8);
    ParallelTrainer trainer = setup.make();
    const bool look = false;
    NanGuard guard(guarded_run(trainer, look), {.snapshot_every = 2});
    bool faulty = true;
    while (trainer.steps_done() < 8)
      (void)guard.step({.threads = 1, .on_cast = {}}, [&](Model<float>& model) {
        if (trainer.steps_done() != 5 || !faulty) return;
        faulty = false;
        model.parameters()[1]->gradient[0] = std::numeric_limits<float>::quiet_NaN();
      });
    CHECK(guard.rollbacks() == 1);
    CHECK(guard.replayed_steps() >= 1);
    CHECK(same_bits(state_of(trainer), expected));
  }
}
