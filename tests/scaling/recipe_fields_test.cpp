// Special values, state and fields of recipes, and bad arguments.

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "scaling/tensors.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("quantize: NaN, Inf and empty tensors give the documented result", "[scaling]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> all_nan(4, kNan);
  const QuantizedTensor te = quantize(find_preset("te-current").activation, {all_nan, 2, 2});
  CHECK(te.scales == std::vector<float>{1.0F});
  CHECK(te.codes == CodeVector(4, 0x7f));
  const QuantizedTensor ao =
      quantize(find_preset("torchao-tensorwise").activation, {all_nan, 2, 2});
  CHECK(std::isnan(ao.scales[0]));

  const std::vector<float> with_inf{1.0F, -kInf, 2.0F, 0.0F};
  const QuantizedTensor inf = quantize(find_preset("te-current").activation, {with_inf, 2, 2});
  CHECK(inf.scales == std::vector<float>{1.0F});
  CHECK(inf.codes == CodeVector{0x38, 0xfe, 0x40, 0x00});

  const std::vector<float> zeros(128, 0.0F);
  const QuantizedTensor ds = quantize(find_preset("deepseek-v3-first").activation, {zeros, 1, 128});
  CHECK((ds.codes[0] & 0x7f) == 0x7f);  // 0 / 0, as its kernel had it
  CHECK(quantize(find_preset("deepseek-v3").activation, {zeros, 1, 128}).codes[0] == 0);
  CHECK(quantize(find_preset("deepgemm").activation, {zeros, 1, 128}).codes[0] == 0);

  for (const Preset& preset : presets()) {
    if (is_calibrated(preset.activation)) continue;
    const QuantizedTensor none = Quantizer(preset.activation).quantize({{}, 0, 128});
    INFO(preset.name);
    CHECK(none.codes.empty());
    CHECK(dequantize(none).empty());
  }
}

TEST_CASE("quantize: delayed recipes use the past", "[scaling]") {
  Quantizer quantizer(find_preset("te-delayed").activation);
  const std::vector<float> small{1.0F, -2.0F};
  const std::vector<float> large{1000.0F, 4.0F};
  CHECK(quantizer.quantize({small, 1, 2}).scales[0] == 1.0F);
  const QuantizedTensor q = quantizer.quantize({large, 1, 2});
  CHECK(q.scales[0] == 224.0F);
  CHECK(q.codes == CodeVector{0x7e, 0x7e});  // both saturate
  CHECK(quantizer.quantize({small, 1, 2}).scales[0] == 448.0F / 1000.0F);
  Quantizer observed(find_preset("te-delayed").activation);
  observed.observe({small, 1, 2});
  CHECK(observed.quantize({large, 1, 2}).codes == q.codes);
}

TEST_CASE("quantize: static recipes use the calibration", "[scaling]") {
  Quantizer quantizer(find_preset("inference-static").activation);
  const std::vector<float> a{1.0F, -2.0F};
  const std::vector<float> b{4.0F, 0.5F};
  CHECK_THROWS_WITH(quantizer.quantize({a, 1, 2}), contains("calibration"));
  quantizer.observe({a, 1, 2});
  quantizer.observe({b, 1, 2});
  quantizer.observe({a, 1, 2});
  CHECK(quantizer.quantize({a, 1, 2}).scales[0] == 112.0F);
  const std::vector<float> bad{1.0F, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_WITH(quantizer.observe({bad, 1, 2}), contains("NaN or Inf"));
}

TEST_CASE("quantize: quanto averages the inverse scales of its batches", "[scaling]") {
  Quantizer quantizer(find_preset("quanto").activation);
  const std::vector<float> a{448.0F * 4.0F};
  const std::vector<float> b{448.0F * 2.0F};
  CHECK_THROWS_WITH(quantizer.quantize({a, 1, 1}), contains("calibration"));
  quantizer.observe({a, 1, 1});
  CHECK(quantizer.quantize({a, 1, 1}).inverse_scales[0] == 4.0F);
  quantizer.observe({b, 1, 1});
  CHECK(quantizer.quantize({a, 1, 1}).inverse_scales[0] ==
        0.9F * 4.0F + 2.0F * static_cast<float>(1.0 - 0.9));
}

TEST_CASE("quantize: a field that a recipe's source does not use is refused", "[scaling]") {
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .power_of_two = true}),
                    contains("power_of_two"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .amax_floor = 1.0F}),
                    contains("amax_floor"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.delayed = {.history = 8}}), contains("delayed"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.window = 2}), contains("window"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.rule = ScaleRule::torchao, .source = ScaleSource::delayed}),
                    contains("rule: expected te"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.rule = ScaleRule::deepseek, .power_of_two = true}),
                    contains("power_of_two"));
  Recipe floored = find_preset("deepseek-v3-first").activation;
  floored.amax_floor = 8.0F;
  const std::vector<float> ones(128, 1.0F);
  CHECK(quantize(floored, {ones, 1, 128}).inverse_scales[0] == 8.0F / 448.0F);
}

TEST_CASE("quantize: vLLM's clamps turn NaN into numbers", "[scaling]") {
  std::vector<float> x(128, 1.0F);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const FloatMatrix row{x, 1, 128};
  CHECK(quantize(find_preset("vllm-per-token").activation, row).codes[5] == 0x7e);
  CHECK(quantize(find_preset("vllm-per-tensor").activation, row).codes[5] == 0x7e);
  CHECK(quantize(find_preset("vllm-group").activation, row).codes[5] == 0xfe);
  const std::vector<float> zeros(128, 0.0F);
  CHECK(quantize(find_preset("vllm-per-tensor").activation, {zeros, 1, 128}).codes[0] == 0x7e);
  CHECK(quantize(find_preset("vllm-per-token").activation, {zeros, 1, 128}).codes[0] == 0x00);
}

TEST_CASE("quantizer: a past goes on elsewhere with the same bits", "[scaling]") {
  // A history that is longer than the steps, one that wraps around, MS-AMP inside and past its
  // warm-up, and both kinds of calibration; an Inf keeps a delayed scale at what it was.
  Recipe wraps = find_preset("te-delayed").gradient;
  wraps.delayed.history = 3;
  Recipe windowed = find_preset("ms-amp").activation;
  windowed.window = 4;
  for (const Recipe& recipe :
       {find_preset("te-delayed").activation, wraps, find_preset("ms-amp").weight, windowed,
        find_preset("inference-static").activation, find_preset("quanto").activation,
        find_preset("te-current").activation}) {
    const bool calibrated =
        recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum;
    INFO(to_string(recipe.source) << ", window " << recipe.window);
    Quantizer original(recipe);
    for (std::uint64_t step = 0; step < 12; ++step) {
      std::vector<float> x = log_normal(96, step);
      if (step == 5 && !calibrated) x[7] = std::numeric_limits<float>::infinity();
      if (calibrated) original.observe({x, 3, 32});
      Quantizer other(recipe);
      other.set_past(original.past());
      CHECK(other.past() == original.past());
      CHECK(same(original.quantize({x, 3, 32}), other.quantize({x, 3, 32})));
      CHECK(other.past() == original.past());
    }
    CHECK(original.past().empty() == (recipe.source == ScaleSource::current));
  }
  Quantizer fresh(find_preset("inference-static").activation);
  fresh.set_past(fresh.past());
  const std::vector<float> ones(8, 1.0F);
  CHECK_THROWS_WITH(fresh.quantize({ones, 1, 8}), contains("calibration: expected at least one"));
  CHECK_THROWS_WITH(fresh.set_past(ones), contains("past: expected 1 values, got 8"));
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn).restore(1.0F, ones),
                    contains("history: expected 1024 slots, got 8"));
  CHECK_THROWS_WITH(MsAmpScaling(FormatId::e4m3fn, 8).restore(1.0F, 9, ones),
                    contains("updates: expected 0 to 8, got 9"));
}

TEST_CASE("presets: operands of a second product, origins", "[scaling]") {
  using enum TensorRole;
  using enum LinearProduct;
  const Preset& hp = find_preset("torchao-rowwise-hp-wgrad");
  CHECK(hp.recipe(weight, fprop).row_block == 1);
  CHECK(hp.recipe(weight, dgrad).row_block == 0);
  CHECK(hp.recipe(gradient, dgrad).row_block == 1);
  CHECK_THROWS_WITH(hp.recipe(gradient, wgrad), contains("wgrad"));
  CHECK_THROWS_WITH(hp.recipe(activation, dgrad), contains("activation enters"));
  CHECK(find_preset("te-current").recipe(gradient, wgrad).format == FormatId::e5m2);
  CHECK(find_linear_product("dgrad") == dgrad);
  for (const Preset& preset : presets()) {
    INFO(preset.name);
    CHECK(!preset.used_by.empty());
    CHECK(!preset.source.empty());
  }
}

TEST_CASE("quantize: bad arguments are named", "[scaling]") {
  const std::vector<float> x(130, 1.0F);
  CHECK_THROWS_WITH(quantize(find_preset("te-blockwise").activation, {x, 1, 130}),
                    contains("divisible by 128"));
  CHECK_THROWS_WITH(quantize(find_preset("mxfp8-floor").activation, {x, 1, 130}),
                    contains("k divisible by 32, got 130"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 2, 64}), contains("[2, 64] = 128 values, got 130"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, -1, -130}), contains("rows >= 0"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.k_block = -1}), contains("0x-1"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.source = ScaleSource::delayed, .k_block = 128}),
                    contains("one tile"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.format = FormatId::bf16}), contains("8-bit"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.format = FormatId::e4m3fnuz, .rule = ScaleRule::mx_floor}),
                    contains("e4m3fn, e5m2"));
  CHECK_THROWS_WITH(Quantizer(Recipe{.policy = {.rounding = RoundingMode::stochastic}}),
                    contains("stochastic"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 1, 130}, false, -1), contains("threads"));
  CHECK_THROWS_WITH(quantize(Recipe{}, {x, 1, 130}, false, 1, Target::neon), contains("target"));
  CHECK_THROWS_WITH(quantize(find_preset("te-delayed").activation, {x, 1, 130}),
                    contains("use Quantizer"));
  CHECK_THROWS_WITH(Quantizer(Recipe{}).observe({x, 1, 130}), contains("recipe"));
  CHECK_THROWS_WITH(find_preset("te-curent"), contains("te-current") && contains("'te-curent'"));
  CHECK_THROWS_WITH(find_tensor_role("bias"), contains("activation, weight or gradient"));
}
