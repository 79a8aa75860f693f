// A run beside its shadow, and runs with a part of its arithmetic.

#include "training/train/shadowed_trainer.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"
#include "train/same_bits.hpp"
#include "training/train/attribution.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

constexpr std::int64_t kWatchedSteps = 60;

std::shared_ptr<const DataSource> watched_language() {
  return synthetic_language({.vocabulary = 64}, 1);
}

TrainerOptions watched_options(std::string_view recipe) {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = find_linear_recipe(recipe);
  options.optimizer.threads = 1;
  options.sequences = 2;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 6, .steps = kWatchedSteps};
  return options;
}

/// Without scales, E4M3 makes small gradients zero: this run departs from its shadow after some
/// steps.
TrainerOptions unscaled_options() {
  TrainerOptions options = watched_options("te-current");
  LinearRecipe& recipe = options.recipe.blocks;
  for (Recipe* one : {&recipe.activation, &recipe.weight, &recipe.gradient})
    *one = {.format = FormatId::e4m3fn, .rule = ScaleRule::unit};
  options.loss_scale = 0.5;
  return options;
}

/// Ratios alone: with so few tokens, losses differ by more than 0.01 nats without a failure.
ShadowOptions ratios(KillAction action) {
  return {.thresholds = {.amax_ratio = 1.25,
                         .moment_ratio = 1.25,
                         .loss_gap = 10.0,
                         .window = 4,
                         .patience = 3},
          .action = action,
          .snapshot_every = 4};
}

std::vector<float> watched_weights(Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

/// The losses of all steps; those of steps left out are not there.
std::vector<double> watched_losses(ShadowedTrainer& trainer) {
  std::vector<double> losses;
  while (trainer.steps_done() < kWatchedSteps && !trainer.stopped())
    losses.push_back(trainer.step({}).record.loss);
  return losses;
}

TrainerOptions attributed_options() {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = find_linear_recipe("te-current");
  options.optimizer.v = {FormatId::f16};
  options.optimizer.threads = 1;
  options.loss_scale = 4.0;
  options.sequences = 2;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 3, .steps = 10};
  return options;
}

double attributed_loss(const TrainerOptions& options) {
  Trainer trainer(options, watched_language());
  double loss = 0.0;
  while (trainer.steps_done() < options.schedule.steps) loss = trainer.step({}).loss;
  return loss;
}

}  // namespace

TEST_CASE("shadowed: a healthy run raises no alarm and has the bits of a run without a shadow",
          "[train]") {
  ShadowedTrainer shadowed(watched_options("te-current"), watched_language(),
                           ratios(KillAction::stop));
  CHECK(watched_losses(shadowed).size() == kWatchedSteps);
  CHECK(shadowed.events().empty());
  Trainer plain(watched_options("te-current"), watched_language());
  while (plain.steps_done() < kWatchedSteps) (void)plain.step({});
  CHECK(same_bits(watched_weights(shadowed.trainer()), watched_weights(plain)));
}

TEST_CASE("shadowed: a failing run is stopped at its first alarm", "[train]") {
  ShadowedTrainer shadowed(unscaled_options(), watched_language(), ratios(KillAction::stop));
  const auto taken = static_cast<std::int64_t>(watched_losses(shadowed).size());
  REQUIRE(shadowed.events().size() == 1);
  const KillEvent& event = shadowed.events().front();
  CHECK(taken < kWatchedSteps);
  CHECK(event.step == taken - 1);
  CHECK(event.step >= 5);  // window and patience
  CHECK(event.action == KillAction::stop);
  CHECK(event.indicator != Indicator::loss_gap);
  CHECK((event.value > 1.25 || event.value < 0.8));
  CHECK(shadowed.stopped());
  CHECK_THROWS_WITH(shadowed.step({}), contains("one stopped after"));
}

TEST_CASE("shadowed: a rollback returns to a state from before the alarm's window", "[train]") {
  ShadowOptions options = ratios(KillAction::roll_back);
  options.most_rollbacks = 1;
  ShadowedTrainer shadowed(unscaled_options(), watched_language(), options);
  Trainer plain(unscaled_options(), watched_language());
  ShadowedStep step;
  do step = shadowed.step({});
  while (!step.event);
  CHECK(step.event->back_to % 4 == 0);
  CHECK(step.event->back_to > 0);
  CHECK(step.event->back_to <= step.event->step - 7);
  CHECK(step.event->back_to > step.event->step - 7 - 4);
  // The batches since are left out, and the next step has the weights of the restored one.
  CHECK(shadowed.steps_done() == step.event->step + 1);
  while (plain.steps_done() < step.event->back_to) (void)plain.step({});
  CHECK(same_bits(watched_weights(shadowed.trainer()), watched_weights(plain)));
  // The arithmetic is the same, so the run fails again, and ends.
  (void)watched_losses(shadowed);
  REQUIRE(shadowed.events().size() == 2);
  CHECK(shadowed.events().back().action == KillAction::stop);
}

TEST_CASE("shadowed: after the switch a run goes on as one in BF16 would from its state",
          "[train]") {
  // An unscaled second moment in E4M3 becomes zero, and the updates without bound.
  TrainerOptions failing = watched_options("te-current");
  failing.optimizer.m = {FormatId::e4m3fn, StateScaling::tensor};
  failing.optimizer.v = {FormatId::e4m3fn};
  ShadowedTrainer shadowed(failing, watched_language(), ratios(KillAction::bf16));
  ShadowedStep step;
  do step = shadowed.step({});
  while (!step.event);
  CHECK(step.event->action == KillAction::bf16);
  Trainer plain(failing, watched_language());
  while (plain.steps_done() < step.event->back_to) (void)plain.step({});
  Trainer high(watched_options("bf16"), watched_language());
  high.take_over(plain);
  while (high.steps_done() <= step.event->step) high.skip_step();
  const std::vector<double> losses = watched_losses(shadowed);
  while (high.steps_done() < kWatchedSteps) (void)high.step({});
  CHECK(same_bits(watched_weights(shadowed.trainer()), watched_weights(high)));
  CHECK(shadowed.events().size() == 1);
  CHECK(losses.back() < std::log(64.0));
  CHECK_FALSE(shadowed.step({}).shadow.has_value());
  while (plain.steps_done() < kWatchedSteps) (void)plain.step({});
  CHECK_FALSE(plain.step({}).loss < 10.0);
}

TEST_CASE("shadowed: a loss that is not finite is an alarm at once", "[train]") {
  TrainerOptions options = watched_options("te-current");
  options.schedule.peak = 1e30;
  ShadowedTrainer shadowed(options, watched_language(), ratios(KillAction::stop));
  const std::vector<double> losses = watched_losses(shadowed);
  CHECK(losses.size() < 13);
  CHECK_FALSE(std::isfinite(losses.back()));
  REQUIRE(shadowed.events().size() == 1);
  CHECK(shadowed.events().front().indicator == Indicator::loss_gap);
}

TEST_CASE("shadowed: options outside their range, and states that cannot take values over",
          "[train]") {
  const auto make = [](const ShadowOptions& options) {
    ShadowedTrainer trainer(watched_options("te-current"), watched_language(), options);
  };
  CHECK_THROWS_WITH(make({.snapshot_every = 0}), contains("snapshot_every: expected at least 1"));
  CHECK_THROWS_WITH(make({.most_rollbacks = 0}), contains("most_rollbacks: expected at least 1"));
  CHECK_THROWS_WITH(make({.thresholds = {.window = 0}}), contains("window: expected at least 1"));
  TrainerOptions narrow = watched_options("bf16");
  narrow.optimizer.v = {FormatId::f16};
  Trainer other(watched_options("te-current"), watched_language());
  CHECK_THROWS_WITH(Trainer(narrow, watched_language()).take_over(other),
                    contains("states: expected f32"));
  TrainerOptions wide = watched_options("bf16");
  std::get<TransformerShape>(wide.model).hidden = 64;
  CHECK_THROWS_WITH(Trainer(wide, watched_language()).take_over(other),
                    contains("expected [128, 32], got [64, 32]"));
  CHECK_THROWS_WITH(find_kill_action("halt", "--kill-switch"),
                    contains("--kill-switch: expected") && contains("roll-back"));
}

TEST_CASE("attribution: the parts of a run are those that differ from BF16", "[train]") {
  const TrainerOptions run = attributed_options();
  CHECK(parts_of(run) == std::vector{RunPart::forward, RunPart::dgrad, RunPart::wgrad,
                                     RunPart::sums, RunPart::states});
  CHECK(parts_of(in_high_precision(run)).empty());
  TrainerOptions products = run;
  products.optimizer.v = {};
  products.recipe.blocks.dgrad = bf16_recipe().dgrad;
  CHECK(parts_of(products) == std::vector{RunPart::forward, RunPart::wgrad, RunPart::sums});
  TrainerOptions states = in_high_precision(run);
  states.optimizer.gradient = {FormatId::e5m2, StateScaling::tensor};
  CHECK(parts_of(states) == std::vector{RunPart::states});
}

TEST_CASE("attribution: one part alone and all others are complements", "[train]") {
  const TrainerOptions run = attributed_options();
  for (const RunPart part : {RunPart::forward, RunPart::dgrad, RunPart::wgrad}) {
    INFO(to_string(part));
    const LinearRecipe alone = with_part_alone(run, part).value().recipe.blocks;
    const LinearRecipe others = without_part(run, part).recipe.blocks;
    const auto check = [&](RunPart product, const GemmSettings& a, const GemmSettings& b) {
      CHECK((a.arithmetic == Arithmetic::fp8) == (product == part));
      CHECK((b.arithmetic == Arithmetic::fp8) == (product != part));
    };
    check(RunPart::forward, alone.forward, others.forward);
    check(RunPart::dgrad, alone.dgrad, others.dgrad);
    check(RunPart::wgrad, alone.wgrad, others.wgrad);
    CHECK(with_part_alone(run, part).value().optimizer.v == StateFormat{});
    CHECK(without_part(run, part).optimizer.v.format == FormatId::f16);
  }
  const TrainerOptions states = with_part_alone(run, RunPart::states).value();
  CHECK(states.optimizer.v.format == FormatId::f16);
  CHECK(states.recipe.blocks.forward.arithmetic == Arithmetic::bf16);
  CHECK(without_part(run, RunPart::states).optimizer.v == StateFormat{});
  CHECK_FALSE(with_part_alone(run, RunPart::sums).has_value());
  const LinearRecipe exact = without_part(run, RunPart::sums).recipe.blocks;
  CHECK(exact.forward.accumulator.kind == AccumulationKind::exact);
  CHECK(exact.forward.arithmetic == Arithmetic::fp8);
}

TEST_CASE("attribution: without every part a run has the loss of BF16", "[train]") {
  const TrainerOptions run = attributed_options();
  TrainerOptions none = run;
  for (const RunPart part : parts_of(run)) none = without_part(none, part);
  none.loss_scale = 1.0;
  CHECK(attributed_loss(none) == attributed_loss(in_high_precision(run)));
  CHECK(attributed_loss(run) != attributed_loss(none));
}
