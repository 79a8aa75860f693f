#include "training/train/guard.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "catch.hpp"
#include "train/same_bits.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

constexpr std::int64_t kSteps = 14;
constexpr std::int64_t kFault = 8;

std::shared_ptr<const DataSource> language() { return synthetic_language({.vocabulary = 64}, 1); }

/// A recipe with a past and optimizer states with scales: everything a snapshot must hold.
TrainerOptions small_options(std::string_view recipe = "te-delayed") {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = find_linear_recipe(recipe);
  options.optimizer.m = {FormatId::e4m3fn, StateScaling::tensor};
  options.optimizer.threads = 1;
  options.sequences = 2;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 3, .steps = kSteps};
  return options;
}

std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

void spoil(Model<float>& model) {
  model.parameters().back()->gradient.back() = std::numeric_limits<float>::quiet_NaN();
}

std::vector<float> run_without_fault() {
  Trainer trainer(small_options(), language());
  while (trainer.steps_done() < kSteps) (void)trainer.step({});
  return weights_of(trainer);
}

}  // namespace

TEST_CASE("a snapshot restores to the bits of a run that never left it", "[train]") {
  const std::string recipe = GENERATE("te-delayed", "ms-amp", "deepgemm");
  INFO(recipe);
  Trainer trainer(small_options(recipe), language());
  for (int i = 0; i < 5; ++i) (void)trainer.step({});
  const TrainerSnapshot snapshot = trainer.snapshot();
  CHECK(snapshot.step() == 5);
  CHECK(snapshot.bytes() > static_cast<std::size_t>(trainer.parameter_count()) * 9);
  while (trainer.steps_done() < kSteps) (void)trainer.step({});
  const std::vector<float> first = weights_of(trainer);

  trainer.restore(snapshot);
  CHECK(trainer.steps_done() == 5);
  CHECK_FALSE(same_bits(weights_of(trainer), first));
  while (trainer.steps_done() < kSteps) (void)trainer.step({});
  CHECK(same_bits(weights_of(trainer), first));

  Trainer fresh(small_options(recipe), language());
  fresh.restore(snapshot);
  while (fresh.steps_done() < kSteps) (void)fresh.step({});
  CHECK(same_bits(weights_of(fresh), first));
}

TEST_CASE("a snapshot of another run is refused", "[train]") {
  Trainer trainer(small_options(), language());
  Trainer other(small_options("te-current"), language());
  CHECK_THROWS_WITH(other.restore(trainer.snapshot()),
                    contains("snapshot") && contains("/options/blocks"));
}

TEST_CASE("the guard undoes a NaN that comes once, to the bits of a run without it", "[train]") {
  const std::int64_t every = GENERATE(1, 3, 100);
  INFO("snapshot every " << every);
  Trainer trainer(small_options(), language());
  NanGuard guard(trainer, {.snapshot_every = every});
  bool fired = false;
  while (trainer.steps_done() < kSteps)
    (void)guard.step({}, [&](Model<float>& model) {
      if (fired || trainer.steps_done() != kFault) return;
      fired = true;
      spoil(model);
    });
  CHECK(fired);
  CHECK(guard.rollbacks() == 1);
  CHECK(guard.skipped_steps() == 0);
  // Back to the snapshot before the failed step: 7, 6 and 0.
  CHECK(guard.replayed_steps() == (every == 1 ? 1 : every == 3 ? 2 : 8));
  CHECK(same_bits(weights_of(trainer), run_without_fault()));
}

TEST_CASE("without a guard one NaN ends the run", "[train]") {
  Trainer trainer(small_options(), language());
  (void)trainer.step({});
  const double loss = trainer.compute_gradients(trainer.steps_done(), {});
  spoil(trainer.model());
  (void)trainer.apply_gradients(loss);
  CHECK(std::isnan(trainer.step({}).loss));
}

TEST_CASE("a step that fails twice is left out", "[train]") {
  Trainer trainer(small_options(), language());
  NanGuard guard(trainer);
  while (trainer.steps_done() < kSteps) {
    const GuardedStep step = guard.step({}, [&](Model<float>& model) {
      if (trainer.steps_done() == kFault) spoil(model);
    });
    if (step.outcome == GuardOutcome::skipped) CHECK(step.record.step == kFault);
    if (step.outcome == GuardOutcome::taken) CHECK(std::isfinite(step.record.loss));
  }
  CHECK(guard.rollbacks() == 2);
  CHECK(guard.skipped_steps() == 1);

  Trainer expected(small_options(), language());
  while (expected.steps_done() < kSteps) {
    if (expected.steps_done() == kFault)
      expected.skip_step();
    else
      (void)expected.step({});
  }
  CHECK(same_bits(weights_of(trainer), weights_of(expected)));
}

TEST_CASE("the guard goes back from every gradient that is not finite", "[train]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")})
    for (const bool first : {true, false}) {
      Trainer trainer(small_options(), language());
      NanGuard guard(trainer);
      (void)guard.step({});
      const GuardedStep step = guard.step({}, [&](Model<float>& model) {
        auto* p = first ? model.parameters().front() : model.parameters().back();
        (first ? p->gradient.front() : p->gradient.back()) = bad;
      });
      INFO("gradient " << bad << (first ? " first" : " last"));
      CHECK(step.outcome == GuardOutcome::rolled_back);
      CHECK(guard.rollbacks() == 1);
      CHECK(trainer.steps_done() < 2);
    }
}

TEST_CASE("the guard gives up where going back does not help", "[train]") {
  Trainer trainer(small_options(), language());
  NanGuard guard(trainer, {.snapshot_every = 1, .most_rollbacks = 3});
  CHECK_THROWS_WITH(guard.step({}, spoil), contains("step 0") && contains("no step before it"));
  Trainer other(small_options(), language());
  NanGuard persistent(other, {.snapshot_every = 1, .most_rollbacks = 3});
  (void)persistent.step({});
  const auto run = [&] {
    while (other.steps_done() < kSteps)
      (void)persistent.step({}, [&](Model<float>& model) {
        if (other.steps_done() > 0) spoil(model);
      });
  };
  CHECK_THROWS_WITH(run(), contains("after 3 rollbacks"));
  CHECK_THROWS_WITH(NanGuard(trainer, {.snapshot_every = 0}), contains("snapshot_every"));
}
