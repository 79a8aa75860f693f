// What training refuses, word for word, and limits that it allows.

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "catch.hpp"
#include "fp8lab/linear/linear.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "message_of.hpp"
#include "training/train/data.hpp"
#include "training/train/divergence.hpp"
#include "training/train/trainer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;
using fp8lab::test::message_of;

TEST_CASE("training: what is refused, word for word, and what is not", "[train]") {
  const auto all = [](const LinearRecipe& r) { return ModelRecipe{r, r, {}}; };
  const auto shaped = [&](const std::function<void(TransformerShape&)>& change) {
    TransformerShape shape{
        .vocabulary = 2, .length = 1, .width = 2, .layers = 1, .heads = 1, .hidden = 1};
    change(shape);
    const Transformer<float> model(shape, all(fp32_recipe()), 1);
  };
  const auto trained = [&](const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options;
    options.model = MlpShape{.vocabulary = 32, .context = 4, .embedding = 32, .hidden = 8};
    options.recipe = all(fp32_recipe());
    change(options);
    const Trainer trainer(options, synthetic_language({.vocabulary = 32}, 1));
  };
  CHECK(message_of([&] { (void)synthetic_language({.vocabulary = 1}, 1); }) ==
        "vocabulary: expected at least 2, got 1");
  CHECK(message_of([&] { (void)synthetic_language({.vocabulary = 2}, 1); }) == "accepted");
  CHECK(message_of([&] { (void)synthetic_language({.successors = 0}, 1); }) ==
        "successors: expected at least 1, got 0");
  CHECK(message_of([&] { (void)synthetic_language({.copy_length = 0}, 1); }) ==
        "copy_length: expected at least 1, got 0");
  CHECK(message_of([&] { (void)synthetic_language({.markov_share = 1.5}, 1); }) ==
        "markov_share: expected 0 .. 1, got 1.5");
  CHECK(message_of([&] { (void)synthetic_language({.markov_share = -0.5}, 1); }) ==
        "markov_share: expected 0 .. 1, got -0.5");
  CHECK(message_of([&] { (void)synthetic_language({.copy_share = 1.25}, 1); }) ==
        "copy_share: expected 0 .. 1, got 1.25");
  CHECK(message_of([&] { (void)synthetic_language({.copy_share = -0.25}, 1); }) ==
        "copy_share: expected 0 .. 1, got -0.25");
  CHECK(message_of([&] {
          (void)synthetic_language({.markov_share = 1.0, .copy_share = 0.0}, 1);
        }) == "accepted");
  CHECK(message_of([&] { DivergenceWatch({.window = 0}); }) ==
        "window: expected at least 1, got 0");
  CHECK(message_of([&] { DivergenceWatch({.window = 1}); }) == "accepted");
  CHECK(message_of([&] { DivergenceWatch({.rise = 0.0}); }) ==
        "rise: expected a number above 0, got 0");
  CHECK(message_of([&] { DivergenceWatch({.rise = std::numeric_limits<double>::quiet_NaN()}); }) ==
        "rise: expected a number above 0, got nan");
  CHECK(message_of([&] {
          DivergenceWatch({.uniform_loss = std::numeric_limits<double>::quiet_NaN()});
        }) == "uniform_loss: expected a number, got nan");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.vocabulary = 1; }); }) ==
        "vocabulary: expected 2 to 16777216, got 1");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.length = 0; }); }) ==
        "length: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.width = 0; }); }) ==
        "width: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.layers = 0; }); }) ==
        "layers: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.heads = 0; }); }) ==
        "heads: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.hidden = 0; }); }) ==
        "hidden: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { shaped([](TransformerShape& s) { s.heads = 3; }); }) ==
        "heads: expected a divisor of 2, got 3");
  CHECK(message_of([&] {
          shaped([](TransformerShape& s) { s.hidden = std::int64_t{1} << 40; });
        }) == "hidden: expected 1 to 16777216, got 1099511627776");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.model = MlpShape{.layers = 0}; }); }) ==
        "layers: expected at least 1, got 0");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.model = MlpShape{.vocabulary = 31}; });
        }) == "vocabulary: expected at least the data's 32, got 31");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.model = MlpShape{.vocabulary = 32}; });
        }) == "accepted");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.loss_scale = 3.0; }); }) ==
        "loss_scale: expected a power of two from 2^-120 to 2^120, got 3");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.loss_scale = 0.0; }); }) ==
        "loss_scale: expected a power of two from 2^-120 to 2^120, got 0");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.loss_scale = std::ldexp(1.0, 121); });
        }) == "loss_scale: expected a power of two from 2^-120 to 2^120, got 2.65846e+36");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.loss_scale = std::ldexp(1.0, -121); });
        }) == "loss_scale: expected a power of two from 2^-120 to 2^120, got 3.76158e-37");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.loss_scale = std::ldexp(1.0, 120); });
        }) == "accepted");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.loss_scale = std::ldexp(1.0, -120); });
        }) == "accepted");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.sequences = 0; }); }) ==
        "sequences: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.sequences = 16777217; }); }) ==
        "sequences: expected 1 to 16777216, got 16777217");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.length = 0; }); }) ==
        "length: expected 1 to 16777216, got 0");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.length = 16777217; }); }) ==
        "length: expected 1 to 16777216, got 16777217");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.sequences = 4097, o.length = 4096; });
        }) == "sequences * length: expected 1 to 16777216, got 16781312");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.steps = 0; }); }) ==
        "steps: expected 1 to 1000000000, got 0");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.steps = 1000000001; }); }) ==
        "steps: expected 1 to 1000000000, got 1000000001");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.steps = 1000000000; }); }) ==
        "accepted");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.warmup = -1; }); }) ==
        "warmup: expected 0 to 1000000000, got -1");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.warmup = 1000000001; }); }) ==
        "warmup: expected 0 to 1000000000, got 1000000001");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.warmup = 0; }); }) ==
        "accepted");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.peak = -0.5; }); }) ==
        "learning_rate: expected a finite number >= 0, got -0.5");
  CHECK(message_of([&] {
          trained(
              [](TrainerOptions& o) { o.schedule.peak = std::numeric_limits<double>::infinity(); });
        }) == "learning_rate: expected a finite number >= 0, got inf");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.schedule.final_share = -0.25; }); }) ==
        "final_share: expected a finite number >= 0, got -0.25");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.clip_norm = -1.0; }); }) ==
        "clip_norm: expected a finite number >= 0, got -1");
  CHECK(message_of([&] {
          trained(
              [](TrainerOptions& o) { o.clip_norm = std::numeric_limits<double>::quiet_NaN(); });
        }) == "clip_norm: expected a finite number >= 0, got nan");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) {
            o.clip_norm = 0.0, o.schedule.peak = 0.0, o.schedule.final_share = 0.0;
          });
        }) == "accepted");
  CHECK(message_of([&] {
          trained([](TrainerOptions& o) { o.recipe.layers["layer9"] = fp32_recipe(); });
        }) == "layers: expected names of linear layers of the model, got 'layer9'");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.recipe.outliers.count = -1; }); }) ==
        "outliers.count: expected 0 .. 128, got -1");
  CHECK(message_of([&] { trained([](TrainerOptions& o) { o.recipe.outliers.count = 129; }); }) ==
        "outliers.count: expected 0 .. 128, got 129");
  CHECK(
      message_of([&] { (void)on_hardware(find_linear_recipe("te-current"), "sm90.wgmma.bf16"); }) ==
      "hardware: expected a model of FP8 operands, as the recipe has, got 'sm90.wgmma.bf16'");
  CHECK(message_of([&] { (void)on_hardware(find_linear_recipe("bf16"), "sm90.wgmma.e4m3"); }) ==
        "hardware: expected a model of BF16 operands, as the recipe has, got 'sm90.wgmma.e4m3'");
  CHECK(message_of([&] { (void)on_hardware(find_linear_recipe("nvfp4"), "sm90"); }) ==
        "hardware: expected sm100 or sm120, which multiply e2m1, got sm90");
  CHECK(message_of([&] {
          (void)Linear<float>("layer", 2, 2, fp32_recipe(), {1.0F, 3.0F});
        }) == "channel_multipliers: expected powers of two, got 3");
  CHECK(message_of([&] {
          (void)Linear<float>("layer", 2, 2, fp32_recipe(), {1.0F, -2.0F});
        }) == "channel_multipliers: expected powers of two, got -2");
  CHECK(message_of([&] {
          (void)Linear<float>("layer", 2, 2, fp32_recipe(), {1.0F, 0.0F});
        }) == "channel_multipliers: expected powers of two, got 0");
  CHECK(message_of([&] {
          (void)Linear<float>("layer", 2, 2, fp32_recipe(), {0.25F, 2.0F});
        }) == "accepted");
}
