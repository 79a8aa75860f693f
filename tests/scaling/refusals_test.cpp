// What recipes, scales and their histories refuse, word for word, and limits that they allow.

#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "fp8lab/scaling/delayed.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "message_of.hpp"

using namespace fp8lab;
using fp8lab::test::message_of;

TEST_CASE("scaling: what is refused, word for word, and what is not", "[scaling]") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<float> six(6, 1.0F);
  const std::vector<float> infinite{1.0F, kInfinite};
  const auto matrix = [&](std::int64_t rows, std::int64_t k) { return FloatMatrix{six, rows, k}; };
  CHECK(message_of([&] { (void)find_auto_scaling("paper"); }) ==
        "auto_scaling: expected as_paper, as_seed or as_shipped, got 'paper'");
  CHECK(message_of([&] { (void)find_growth_law("fast"); }) ==
        "growth: expected exponential, linear, doubling or none, got 'fast'");
  CHECK(message_of([&] { (void)auto_scaling_options(AutoScaling::as_shipped); }) ==
        "auto_scaling: expected as_paper or as_seed, got as_shipped, which has no mu");
  CHECK(message_of([&] { (void)AutoScaler({.threshold = -1e-9}); }) ==
        "threshold: expected 0 to 1, got -1e-09");
  CHECK(message_of([&] { (void)AutoScaler({.threshold = 1.001}); }) ==
        "threshold: expected 0 to 1, got 1.001");
  CHECK(message_of([&] { (void)AutoScaler({.threshold = 0.0}); }) == "accepted");
  CHECK(message_of([&] { (void)AutoScaler({.threshold = 1.0}); }) == "accepted");
  CHECK(message_of([&] { (void)AutoScaler({.steps_to_double = 0}); }) ==
        "steps_to_double: expected at least 1, got 0");
  CHECK(message_of([&] { (void)AutoScaler({.steps_to_double = 1}); }) == "accepted");
  CHECK(message_of([&] { (void)AutoScaler({.clean_steps = -1}); }) ==
        "clean_steps: expected at least 0, got -1");
  CHECK(message_of([&] { (void)AutoScaler({}, 0.0); }) ==
        "mu: expected a positive, finite number, got 0");
  CHECK(message_of([&] { (void)AutoScaler({}, -0.5); }) ==
        "mu: expected a positive, finite number, got -0.5");
  CHECK(message_of([&] { (void)AutoScaler({}, kInfinite); }) ==
        "mu: expected a positive, finite number, got inf");
  CHECK(message_of([&] { AutoScaler({}).update(-0.25); }) ==
        "saturated_share: expected 0 to 1, got -0.25");
  CHECK(message_of([&] { AutoScaler({}).update(1.25); }) ==
        "saturated_share: expected 0 to 1, got 1.25");
  CHECK(message_of([&] { AutoScaler({}).update(0.0); }) == "accepted");
  CHECK(message_of([&] { AutoScaler({}).update(1.0); }) == "accepted");
  CHECK(message_of([&] {
          AutoScaler({}).set_state({0.0, 2.0, 3, 4});
        }) == "mu: expected above 0, got 0 and 2");
  CHECK(message_of([&] {
          AutoScaler({}).set_state({2.0, -1.0, 3, 4});
        }) == "mu: expected above 0, got 2 and -1");
  CHECK(message_of([&] {
          AutoScaler({}).set_state({1.5, 2.0, -3, 4});
        }) == "clean steps: expected at least 0, got -3 and 4");
  CHECK(message_of([&] {
          AutoScaler({}).set_state({1.5, 2.0, 3, -4});
        }) == "clean steps: expected at least 0, got 3 and -4");
  CHECK(message_of([&] { AutoScaler({}).set_state({1.5, 2.0, 0, 0}); }) == "accepted");
  CHECK(message_of([&] { (void)shipped_scaling(1.0F, 0); }) == "ranks: expected at least 1, got 0");
  CHECK(message_of([&] { (void)shipped_scaling(1.0F, 1); }) == "accepted");
  CHECK(message_of([&] { (void)find_amax_algorithm("mean"); }) ==
        "algorithm: expected max or most_recent, got 'mean'");
  CHECK(message_of([&] { (void)find_zero_amax("zero"); }) ==
        "zero_amax: expected one of keep_history, roll, got 'zero'");
  CHECK(message_of([&] { (void)DelayedScaling(FormatId::e4m3fn, {.history = 0}); }) ==
        "history: expected at least 1, got 0");
  CHECK(message_of([&] { (void)DelayedScaling(FormatId::e4m3fn, {.history = 1}); }) == "accepted");
  CHECK(message_of([&] { (void)DelayedScaling(FormatId::e4m3fn, {.margin = kInfinite}); }) ==
        "margin: expected a finite number, got inf");
  CHECK(message_of([&] {
          DelayedScaling(FormatId::e4m3fn, {.history = 3}).restore(1.0F, std::vector<float>(2));
        }) == "history: expected 3 slots, got 2");
  CHECK(message_of([&] {
          DelayedScaling(FormatId::e4m3fn, {.history = 3}).restore(1.0F, std::vector<float>(3));
        }) == "accepted");
  CHECK(message_of([&] {
          DelayedScaling(FormatId::e4m3fn, {.history = 3}).restore(1.0F, std::vector<float>(4));
        }) == "history: expected 3 slots, got 4");
  CHECK(message_of([&] { (void)MsAmpScaling(FormatId::e4m3fn, 0); }) ==
        "window: expected at least 1, got 0");
  CHECK(message_of([&] { (void)MsAmpScaling(FormatId::e4m3fn, 1); }) == "accepted");
  CHECK(message_of([&] {
          MsAmpScaling(FormatId::e4m3fn, 3).restore(1.0F, 0, std::vector<float>(2));
        }) == "window: expected 3 slots, got 2");
  CHECK(message_of([&] {
          MsAmpScaling(FormatId::e4m3fn, 3).restore(1.0F, -1, std::vector<float>(3));
        }) == "updates: expected 0 to 3, got -1");
  CHECK(message_of([&] {
          MsAmpScaling(FormatId::e4m3fn, 3).restore(1.0F, 4, std::vector<float>(3));
        }) == "updates: expected 0 to 3, got 4");
  CHECK(message_of([&] {
          MsAmpScaling(FormatId::e4m3fn, 3).restore(1.0F, 3, std::vector<float>(3));
        }) == "accepted");
  CHECK(message_of([&] { (void)find_scale_source("past"); }) ==
        "source: expected one of current, delayed, ms_amp, calibration, momentum, got 'past'");
  CHECK(message_of([&] { (void)quantize({}, matrix(-1, 2)); }) ==
        "x: expected rows >= 0 and k >= 0, got [-1, 2]");
  CHECK(message_of([&] { (void)quantize({}, matrix(2, -1)); }) ==
        "x: expected rows >= 0 and k >= 0, got [2, -1]");
  CHECK(message_of([&] {
          (void)quantize({}, {six, 2, 4});
        }) == "x: expected [2, 4] = 8 values, got 6");
  CHECK(message_of([&] { (void)quantize({.rows_multiple = 4}, matrix(6, 1)); }) ==
        "x: expected rows divisible by 4, got 6");
  CHECK(message_of([&] { (void)quantize({.k_multiple = 4}, matrix(1, 6)); }) ==
        "x: expected k divisible by 4, got 6");
  CHECK(message_of([&] { (void)quantize({.rows_multiple = 3, .k_multiple = 2}, matrix(3, 2)); }) ==
        "accepted");
  CHECK(message_of([&] { (void)quantize({.row_block = -1}, matrix(2, 3)); }) ==
        "block: expected rows and columns >= 0, got -1x0");
  CHECK(message_of([&] { (void)quantize({.k_block = -2}, matrix(2, 3)); }) ==
        "block: expected rows and columns >= 0, got 0x-2");
  CHECK(message_of([&] { (void)quantize({.format = FormatId::bf16}, matrix(2, 3)); }) ==
        "format: expected an 8-bit element format, got bf16");
  CHECK(message_of([&] { (void)quantize({.format = FormatId::e8m0fnu}, matrix(2, 3)); }) ==
        "format: expected an 8-bit element format, got e8m0fnu");
  CHECK(message_of([&] {
          (void)quantize({.policy = {.rounding = RoundingMode::stochastic}}, matrix(2, 3));
        }) == "policy: expected a rounding mode without random bits, got stochastic");
  CHECK(message_of([&] { (void)Quantizer({.delayed = {.history = 16}}); }) ==
        "delayed: expected its default, since source current does not use it, got another");
  CHECK(message_of([&] { (void)Quantizer({.delayed = {.margin = 1.0F}}); }) ==
        "delayed: expected its default, since source current does not use it, got another");
  CHECK(message_of([&] {
          (void)Quantizer({.delayed = {.algorithm = AmaxAlgorithm::most_recent}});
        }) == "delayed: expected its default, since source current does not use it, got another");
  CHECK(message_of([&] { (void)Quantizer({.delayed = {.zero_amax = ZeroAmax::roll}}); }) ==
        "delayed: expected its default, since source current does not use it, got another");
  CHECK(message_of([&] { (void)Quantizer({.window = 5}); }) ==
        "window: expected its default, since source current does not use it, got another");
  CHECK(message_of([&] { (void)Quantizer({.source = ScaleSource::delayed, .window = 5}); }) ==
        "window: expected its default, since source delayed does not use it, got another");
  CHECK(message_of(
            [&] { (void)Quantizer({.source = ScaleSource::delayed, .power_of_two = true}); }) ==
        "power_of_two: expected its default, since source delayed does not use it, got another");
  CHECK(
      message_of([&] { (void)Quantizer({.source = ScaleSource::delayed, .amax_floor = 0.5F}); }) ==
      "amax_floor: expected its default, since source delayed does not use it, got another");
  CHECK(message_of([&] {
          (void)Quantizer({.rule = ScaleRule::deepseek, .source = ScaleSource::delayed});
        }) == "rule: expected te, flax or flax_bf16 for source delayed, got deepseek");
  CHECK(message_of([&] {
          (void)Quantizer({.rule = ScaleRule::te, .source = ScaleSource::ms_amp});
        }) == "rule: expected ms_amp for source ms_amp, got te");
  CHECK(message_of([&] { (void)Quantizer({.source = ScaleSource::delayed, .k_block = 128}); }) ==
        "block: expected one tile (0x0), since the scale comes from earlier tensors, got 0x128");
  CHECK(message_of([&] { (void)Quantizer({.source = ScaleSource::delayed, .row_block = 1}); }) ==
        "block: expected one tile (0x0), since the scale comes from earlier tensors, got 1x0");
  CHECK(message_of([&] { (void)quantize({.source = ScaleSource::delayed}, matrix(2, 3)); }) ==
        "recipe: expected a recipe that uses only the current tensor, got a delayed, windowed or "
        "static one; use Quantizer");
  CHECK(message_of([&] { Quantizer({}).observe(matrix(2, 3)); }) ==
        "recipe: expected a recipe whose scale comes from earlier tensors (delayed, windowed or "
        "static), got a recipe that uses only the current tensor");
  CHECK(message_of([&] {
          (void)Quantizer({.source = ScaleSource::calibration}).quantize(matrix(2, 3));
        }) == "calibration: expected at least one tensor, got none");
  CHECK(message_of([&] {
          Quantizer({.source = ScaleSource::calibration}).observe({infinite, 1, 2});
        }) == "calibration: expected finite values, got NaN or Inf in a batch");
  CHECK(message_of([&] {
          Quantizer({.source = ScaleSource::delayed}).set_past(std::vector<float>(3));
        }) == "past: expected 1025 values, got 3");
  CHECK(message_of([&] { (void)TileScaler({.rule = ScaleRule::unit, .power_of_two = true}); }) ==
        "power_of_two: expected false for rule unit, which has no such option, got true");
  CHECK(message_of([&] { (void)TileScaler({.rule = ScaleRule::unit, .amax_floor = 0.5F}); }) ==
        "amax_floor: expected 0 for rule unit, which has no such option, got 0.5");
  CHECK(message_of([&] { (void)TileScaler({.amax_floor = -0.5F}); }) ==
        "amax_floor: expected a finite number, 0 or more, got -0.5");
  CHECK(message_of([&] { (void)TileScaler({.rule = ScaleRule::te, .amax_floor = -0.5F}); }) ==
        "amax_floor: expected a finite number, 0 or more, got -0.5");
  CHECK(message_of([&] { (void)TileScaler({.rule = ScaleRule::te, .amax_floor = kInfinite}); }) ==
        "amax_floor: expected a finite number, 0 or more, got inf");
  CHECK(message_of([&] {
          (void)Quantizer(
              {.format = FormatId::e4m3fn, .rule = ScaleRule::torchao_nvfp4, .k_block = 16});
        }) == "format: expected e2m1 for rule torchao_nvfp4, got e4m3fn");
  CHECK(message_of([&] {
          (void)Quantizer({.format = FormatId::e2m1, .rule = ScaleRule::torchao_nvfp4});
        }) == "block: expected tiles along k (16 in NVFP4), since scales have two levels, got 0x0");
  CHECK(message_of([&] {
          (void)Quantizer({.format = FormatId::e2m1,
                           .rule = ScaleRule::torchao_nvfp4,
                           .source = ScaleSource::delayed,
                           .k_block = 16});
        }) == "rule: expected te, flax or flax_bf16 for source delayed, got torchao_nvfp4");
  CHECK(message_of([&] {
          (void)Quantizer({.format = FormatId::e2m1,
                           .rule = ScaleRule::torchao_nvfp4,
                           .k_block = 16,
                           .power_of_two = true});
        }) ==
        "power_of_two and amax_floor: expected their defaults for rule torchao_nvfp4, which has no "
        "such options, got others");
  CHECK(message_of([&] {
          (void)TileScaler({.rule = ScaleRule::torchao_nvfp4, .format = FormatId::e2m1});
        }) == "rule: expected one with one level of scales, got torchao_nvfp4");
}
