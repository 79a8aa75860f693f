// What Adam or a mean hides: each step of a trainer is looked at by itself.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "training/train/divergence.hpp"
#include "training/train/gradient_reducer.hpp"
#include "training/train/guard.hpp"
#include "training/train/trainer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

TEST_CASE("gradients above the limit are brought to its length, others stay", "[train]") {
  // Adam divides a common factor out again: gradients are compared, not weights.
  const auto clipped = [](double limit) {
    TrainerOptions options;
    options.model = TransformerShape{
        .vocabulary = 64, .length = 8, .width = 16, .layers = 1, .heads = 2, .hidden = 16};
    options.sequences = 1;
    options.length = 8;
    options.clip_norm = limit;
    Trainer trainer(options, synthetic_language({.vocabulary = 64}, 1));
    trainer.compute_gradients(0, {});
    const auto parameters = trainer.model().parameters();
    for (auto* p : parameters) std::fill(p->gradient.begin(), p->gradient.end(), 0.0F);
    // A norm of 5 over two tensors.
    parameters.front()->gradient.front() = 3.0F;
    parameters.back()->gradient.back() = -4.0F;
    CHECK(trainer.apply_gradients(0.0).gradient_norm == 5.0);
    return std::vector<float>{parameters.front()->gradient.front(),
                              parameters.back()->gradient.back()};
  };
  const std::vector<float> whole{3.0F, -4.0F};
  for (const double limit : {0.0, 5.0, 5.5, 50.0}) {  // 0: none
    INFO("limit " << limit);
    CHECK(clipped(limit) == whole);
  }
  CHECK(clipped(2.5) == std::vector<float>{1.5F, -2.0F});
  CHECK(clipped(4.0) == std::vector<float>{3.0F * 0.8F, -4.0F * 0.8F});
}

TEST_CASE("a mean of fewer losses than a window is no lowest one", "[train]") {
  DivergenceWatch watch({.window = 3, .rise = 1.0, .uniform_loss = 10.0});
  watch.observe(1.0);
  CHECK(watch.rise() == -9.0);
  watch.observe(4.0);  // 2.5 on average: below what knowing nothing gives, though above 1
  CHECK(watch.rise() == -7.5);
  watch.observe(7.0);  // the first full window
  CHECK(watch.rise() == 0.0);
  watch.observe(7.0);  // 6 against 4
  CHECK(watch.rise() == 2.0);
}

TEST_CASE("synthetic language: batches share no sequence", "[train]") {
  const auto data = synthetic_language({}, 3);
  constexpr std::int64_t kLength = 16;
  const Batch all = data->batch(0, 6, kLength);
  for (std::int64_t index = 0; index < 3; ++index) {
    const Batch two = data->batch(index, 2, kLength);
    const auto begin = static_cast<std::ptrdiff_t>(index * 2 * kLength);
    INFO("batch " << index);
    CHECK(two.inputs ==
          std::vector(all.inputs.begin() + begin, all.inputs.begin() + begin + 2 * kLength));
  }
}

TEST_CASE("a window of one loss has its lowest from the first one on", "[train]") {
  DivergenceWatch watch({.window = 1, .rise = 1.0, .uniform_loss = 10.0});
  watch.observe(4.0);
  CHECK(watch.rise() == 0.0);
  watch.observe(5.5);
  CHECK(watch.rise() == 1.5);
  watch.observe(3.0);
  watch.observe(4.0);
  CHECK(watch.rise() == 1.0);
}

TEST_CASE("synthetic language: a copy may begin behind the first whole segment", "[train]") {
  // A copy of two begins wherever it may, here from the third token on: it copies the first two.
  const auto data = synthetic_language({.vocabulary = 1000,
                                        .zipf_exponent = 0.0,
                                        .markov_share = 0.0,
                                        .copy_share = 1.0,
                                        .copy_length = 1},
                                       5);
  const Batch batch = data->batch(0, 4, 32);
  for (std::size_t i = 0; i < batch.inputs.size(); i += 32) {
    INFO("sequence " << i / 32);
    // Tokens 0 and 1 are drawn; from 2 on each is a copy of an earlier one.
    for (std::size_t t = i + 2; t < i + 32; ++t)
      CHECK((batch.inputs[t] == batch.inputs[i] || batch.inputs[t] == batch.inputs[i + 1]));
  }
}

namespace {

/// A reducer of one rank, one tensor after the other.
class OneRank {
 public:
  explicit OneRank(const AutoScalingOptions& rule)
      : reducer_(in_process_fabric(),
                 {.ranks = 1,
                  .wire = find_wire_format("e4m3fn"),
                  .scaling = GradientScaling::automatic,
                  .auto_scaling = rule},
                 3) {}
  void reduce(std::size_t tensor, std::vector<float> values, bool look = false) {
    reducer_.reduce(tensor, values.size(), {std::span<float>(values)}, look);
  }
  void with_scalers(std::size_t count) {
    reducer_.set_scalers(std::vector<AutoScaler>(count, AutoScaler(AutoScalingOptions{})));
  }
  [[nodiscard]] const GradientReducer& reducer() const { return reducer_; }

 private:
  GradientReducer reducer_;
};

}  // namespace

TEST_CASE("an element of either sign at max finite has saturated", "[train]") {
  for (const float largest : {1.0F, -1.0F}) {
    INFO("largest " << largest);
    OneRank one({.threshold = 1.0});
    one.reduce(0, {largest, 0.5F, -0.5F, 0.25F, -0.125F});
    CHECK(one.reducer().saturated_percent() == 20.0);
    one.reduce(2, {0.25F, largest, largest});
    CHECK(one.reducer().saturated_percent() == 37.5);
    // Nothing was looked at.
    CHECK(one.reducer().sqnr_db() == 0.0);
    CHECK(one.reducer().underflow_percent() == 0.0);
  }
}

TEST_CASE("the smallest mu is that of any tensor, each with its own saturation", "[train]") {
  for (const std::size_t tensor : {0U, 1U, 2U}) {
    INFO("tensor " << tensor);
    OneRank one({.threshold = 0.2, .growth = GrowthLaw::none});
    for (const std::size_t other : {0U, 1U, 2U})
      one.reduce(other, other == tensor ? std::vector<float>{1.0F, 1.0F, 0.5F}
                                        : std::vector<float>{1.0F, 0.5F, 0.5F, 0.5F, 0.5F});
    CHECK(one.reducer().smallest_mu() == 0.5);
    for (const std::size_t other : {0U, 1U, 2U})
      CHECK(one.reducer().scalers()[other].mu() == (other == tensor ? 0.5 : 1.0));
  }
}

TEST_CASE("the smallest mu may be above 1", "[train]") {
  OneRank one({.threshold = 1.0, .steps_to_double = 1});
  CHECK(one.reducer().smallest_mu() == 1.0);
  for (const std::size_t tensor : {0U, 1U, 2U}) {
    CHECK(one.reducer().smallest_mu() == 1.0);
    one.reduce(tensor, {0.5F, 0.25F});
  }
  CHECK(one.reducer().smallest_mu() == 2.0);
}

namespace {

TrainerOptions guarded_options() {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 8, .width = 16, .layers = 1, .heads = 2, .hidden = 16};
  options.recipe.blocks = find_linear_recipe("te-delayed");
  options.sequences = 1;
  options.length = 8;
  options.schedule = {.peak = 1e-3, .warmup = 1, .steps = 12};
  return options;
}

/// Of a step the attempts, from 1, whose gradients are spoiled.
using Faults = std::map<std::int64_t, std::set<int>>;

/// Runs 12 steps.
NanGuard run_guarded(Trainer& trainer, const GuardOptions& options, const Faults& faults) {
  NanGuard guard(trainer, options);
  std::map<std::int64_t, int> attempts;
  while (trainer.steps_done() < 12)
    (void)guard.step({}, [&](Model<float>& model) {
      const std::int64_t step = trainer.steps_done();
      const auto found = faults.find(step);
      if (!(found != faults.end() && found->second.contains(++attempts[step]))) return;
      model.parameters().front()->gradient.back() = std::numeric_limits<float>::quiet_NaN();
    });
  return guard;
}

}  // namespace

TEST_CASE("a guard counts rollbacks since it last came further", "[train]") {
  Trainer clean(guarded_options(), synthetic_language({.vocabulary = 64}, 1));
  while (clean.steps_done() < 12) (void)clean.step({});
  for (const std::int64_t every : {1, 2, 5}) {
    INFO("a snapshot every " << every);
    Trainer trainer(guarded_options(), synthetic_language({.vocabulary = 64}, 1));
    // One rollback each, with steps between them that are new.
    const NanGuard guard = run_guarded(trainer, {.snapshot_every = every, .most_rollbacks = 1},
                                       {{3, {1}}, {6, {1}}, {8, {1}}, {11, {1}}});
    CHECK(guard.rollbacks() == 4);
    CHECK(guard.skipped_steps() == 0);
    for (std::size_t i = 0; i < clean.model().parameters().size(); ++i)
      CHECK(trainer.model().parameters()[i]->value == clean.model().parameters()[i]->value);
  }
  Trainer trainer(guarded_options(), synthetic_language({.vocabulary = 64}, 1));
  CHECK_THROWS_WITH(
      run_guarded(trainer, {.snapshot_every = 3, .most_rollbacks = 1}, {{5, {1}}, {4, {2}}}),
      contains("gradients of step 4: expected finite, got not finite, after 1 rollbacks"));
}

TEST_CASE("a guard takes a snapshot when one is due, and again after it went back", "[train]") {
  const auto snapshots = [](std::int64_t every, const Faults& faults) {
    Trainer trainer(guarded_options(), synthetic_language({.vocabulary = 64}, 1));
    return run_guarded(trainer, {.snapshot_every = every}, faults).snapshots();
  };
  CHECK(snapshots(1, {}) == 12);
  CHECK(snapshots(5, {}) == 3);   // 0, 5, 10
  CHECK(snapshots(11, {}) == 2);  // 0, 11
  CHECK(snapshots(12, {}) == 1);
  CHECK(snapshots(5, {{7, {1}}}) == 3);   // back to 5, which is good
  CHECK(snapshots(5, {{5, {1}}}) == 4);   // that of step 5 is dropped and taken again
  CHECK(snapshots(1, {{4, {1}}}) == 13);  // so is that of step 4
}

TEST_CASE("a snapshot's bytes are those of its states, its amaxes and its step", "[train]") {
  for (const char* recipe : {"te-delayed", "te-current"}) {
    TrainerOptions options = guarded_options();
    options.recipe.blocks = find_linear_recipe(recipe);
    Trainer trainer(options, synthetic_language({.vocabulary = 64}, 1));
    for (int i = 0; i < 3; ++i) (void)trainer.step({});
    std::size_t bytes = sizeof(std::int64_t);
    for (const NamedTensor& tensor : trainer.optimizer().state())
      bytes += tensor.tensor.bytes.size();
    std::size_t amaxes = 0;
    for (OperandCast* cast : trainer.model().casts()) amaxes += cast->amaxes().size();
    INFO(recipe << ", amaxes " << amaxes);
    // Four linear layers of a block with three casts each, of three steps.
    CHECK(amaxes == (std::string(recipe) == "te-delayed" ? 36 : 0));
    CHECK(trainer.snapshot().bytes() == bytes + amaxes * sizeof(float));
  }
}

TEST_CASE("outlier channels are spread evenly, none to all of them", "[train]") {
  CHECK(channel_multipliers({0, 3}, 4).empty());
  CHECK(channel_multipliers({2, 3}, 7) == std::vector<float>{8, 1, 1, 8, 1, 1, 1});
  CHECK(channel_multipliers({3, -2}, 5) == std::vector<float>{0.25F, 0.25F, 1, 0.25F, 1});
  CHECK(channel_multipliers({4, 1}, 4) == std::vector<float>{2, 2, 2, 2});
  CHECK_THROWS_WITH(channel_multipliers({5, 1}, 4),
                    contains("outliers.count: expected 0 .. 4, got 5"));
  CHECK_THROWS_WITH(channel_multipliers({-1, 1}, 4),
                    contains("outliers.count: expected 0 .. 4, got -1"));
}

TEST_CASE("a step may have 2^24 tokens, and no more", "[train]") {
  TrainerOptions options = guarded_options();
  options.sequences = std::int64_t{1} << 21;
  CHECK_NOTHROW(Trainer(options, synthetic_language({.vocabulary = 64}, 1)));
  ++options.sequences;
  CHECK_THROWS_WITH(Trainer(options, synthetic_language({.vocabulary = 64}, 1)),
                    contains("sequences * length: expected 1 to 16777216, got 16777224"));
  options.sequences = 1;
  options.schedule.steps = 1'000'000'000;
  options.schedule.warmup = 1'000'000'000;
  CHECK_NOTHROW(Trainer(options, synthetic_language({.vocabulary = 64}, 1)));
  ++options.schedule.steps;
  CHECK_THROWS_WITH(Trainer(options, synthetic_language({.vocabulary = 64}, 1)),
                    contains("steps: expected 1 to 1000000000, got 1000000001"));
  --options.schedule.steps;
  ++options.schedule.warmup;
  CHECK_THROWS_WITH(Trainer(options, synthetic_language({.vocabulary = 64}, 1)),
                    contains("warmup: expected 0 to 1000000000, got 1000000001"));
}

TEST_CASE("training: each refusal says what was expected, word for word", "[train]") {
  const auto refused = [](const auto& call, const std::string& text) {
    CHECK_THROWS_WITH(call(), text);
  };
  const auto language = [](const LanguageOptions& options) {
    return [options] { (void)synthetic_language(options, 1); };
  };
  refused(language({.vocabulary = 1}), "vocabulary: expected at least 2, got 1");
  refused(language({.successors = 0}), "successors: expected at least 1, got 0");
  refused(language({.copy_length = 0}), "copy_length: expected at least 1, got 0");
  refused(language({.markov_share = 1.5}), "markov_share: expected 0 .. 1, got 1.5");
  refused(language({.copy_share = -0.5}), "copy_share: expected 0 .. 1, got -0.5");
  CHECK_NOTHROW(language({.vocabulary = 2,
                          .markov_share = 1.0,
                          .successors = 1,
                          .copy_share = 1.0,
                          .copy_length = 1})());
  CHECK_NOTHROW(language({.markov_share = 0.0, .copy_share = 0.0})());

  refused([] { DivergenceWatch({.window = 0, .rise = 1.0}); },
          "window: expected at least 1, got 0");
  refused([] { DivergenceWatch({.window = 1, .rise = 0.0}); },
          "rise: expected a number above 0, got 0");
  refused([] { DivergenceWatch({.window = 1, .rise = 1.0, .uniform_loss = std::nan("")}); },
          "uniform_loss: expected a number, got nan");

  const auto data = [] { return synthetic_language({.vocabulary = 65}, 1); };
  refused([&] { Trainer(guarded_options(), data()); },
          "vocabulary: expected at least the data's 65, got 64");
  Trainer trainer(guarded_options(), synthetic_language({.vocabulary = 64}, 1));
  refused([&] { NanGuard(trainer, {.snapshot_every = 0}); },
          "snapshot_every: expected at least 1, got 0");
  refused([&] { NanGuard(trainer, {.most_rollbacks = 0}); },
          "most_rollbacks: expected at least 1, got 0");
  refused([&] { OneRank({.threshold = 1.0}).with_scalers(2); }, "scalers: expected 3, got 2");
  refused([] { find_gradient_scaling("half", "--scaling"); },
          "--scaling: expected pre, post, auto or shipped, got 'half'");
  for (const double scale : {3.0, 0x1p121, 0x1p-121}) {
    TrainerOptions options = guarded_options();
    options.loss_scale = scale;
    refused(
        [&] { Trainer(options, synthetic_language({.vocabulary = 64}, 1)); },
        fmt::format("loss_scale: expected a power of two from 2^-120 to 2^120, got {:g}", scale));
  }
  for (const double scale : {0x1p120, 0x1p-120}) {
    TrainerOptions options = guarded_options();
    options.loss_scale = scale;
    CHECK_NOTHROW(Trainer(options, synthetic_language({.vocabulary = 64}, 1)));
  }
}

TEST_CASE("a schedule begins at its warm-up and ends at its floor", "[train]") {
  const train::Schedule schedule{.peak = 8.0, .warmup = 4, .steps = 12, .final_share = 0.25};
  for (std::int64_t step = 0; step < 4; ++step)
    CHECK(schedule.at(step) == 2.0 * static_cast<double>(step + 1));
  CHECK(schedule.at(4) == 8.0);
  CHECK(std::abs(schedule.at(8) - 5.0) < 1e-12);  // half-way between 8 and 2
  CHECK(std::abs(schedule.at(6) - (2.0 + 6.0 * 0.5 * (1.0 + std::sqrt(0.5)))) < 1e-12);
  for (const std::int64_t step : {12, 13, 1000}) CHECK(std::abs(schedule.at(step) - 2.0) < 1e-12);
  // Without a step after the warm-up it falls at once.
  const train::Schedule warm{.peak = 1.0, .warmup = 3, .steps = 3, .final_share = 0.5};
  CHECK(warm.at(2) == 1.0);
  CHECK(warm.at(3) == 1.0);
  CHECK(warm.at(4) == 0.5);
}
