#include "fp8lab/scaling/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/presets.hpp"

using namespace fp8lab;

namespace {

std::vector<float> log_normal(std::int64_t size, std::uint64_t seed = 1) {
  const RandomStream random(seed, "quantize_test");
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(random.normal(2 * i) * std::exp(2.0 * random.normal(2 * i + 1)));
  return x;
}

bool same(const QuantizedTensor& a, const QuantizedTensor& b) {
  return a.codes == b.codes && a.scales == b.scales && a.inverse_scales == b.inverse_scales &&
         a.e8m0 == b.e8m0 && a.row_block == b.row_block && a.k_block == b.k_block;
}

/// Tile by tile: its amax, the rule, and one cast an element.
void check_elementwise(const Recipe& recipe, const FloatMatrix& x, const QuantizedTensor& q) {
  const auto check_tile = [&](std::int64_t r0, std::int64_t c0) {
    const std::int64_t r1 = std::min(r0 + q.row_block, x.rows);
    const std::int64_t c1 = std::min(c0 + q.k_block, x.k);
    const auto at = [&](std::int64_t r, std::int64_t c) {
      return static_cast<std::size_t>(r * x.k + c);
    };
    float largest = 0.0F;
    for (std::int64_t r = r0; r < r1; ++r)
      for (std::int64_t c = c0; c < c1; ++c)
        largest = std::max(largest, std::abs(x.values[at(r, c)]));
    const TileScale s = tile_scale({.rule = recipe.rule,
                                    .format = recipe.format,
                                    .power_of_two = recipe.power_of_two,
                                    .amax_floor = recipe.amax_floor},
                                   largest);
    const auto tile = (r0 / q.row_block) * q.tile_columns() + c0 / q.k_block;
    REQUIRE(q.inverse_scales[static_cast<std::size_t>(tile)] == s.inverse_scale);
    for (std::int64_t r = r0; r < r1; ++r)
      for (std::int64_t c = c0; c < c1; ++c) {
        const float value = x.values[at(r, c)];
        const float scaled = scaled_element(recipe.rule, value, s);
        const std::uint32_t expected = encode(format(recipe.format), recipe.policy, scaled);
        if (q.codes[at(r, c)] == expected) continue;
        INFO("[" << r << ", " << c << "] = " << value << " scale " << s.scale);
        REQUIRE(q.codes[at(r, c)] == expected);
      }
  };
  for (std::int64_t r = 0; r < x.rows; r += q.row_block)
    for (std::int64_t c = 0; c < x.k; c += q.k_block) check_tile(r, c);
}

/// Every kind of binary32 value, large and small tiles next to each other.
std::vector<float> any_bits(std::int64_t size) {
  const RandomStream random(3, "quantize_test bits");
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::bit_cast<float>(random.bits32(i));
    if (i % 4096 < 2048) x[i] = static_cast<float>(random.normal(i));
    if (i % 4096 < 512) x[i] = 0.0F * x[i];
  }
  return x;
}

bool is_calibrated(const Recipe& recipe) {
  return recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum;
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float value : values) words.push_back(bits_of(value));
  return words;
}

void check_targets(const Recipe& recipe, const FloatMatrix& x) {
  const auto run = [&](int threads, Target target) {
    Quantizer quantizer(recipe);
    if (recipe.source != ScaleSource::current)
      for (int step = 0; step < 20; ++step) quantizer.observe({x.values.first(1024), 8, 128});
    QuantizedTensor q = quantizer.quantize(x, true, threads, target);
    if (recipe.source == ScaleSource::current) return q;
    // The step that a recipe with a past has taken shows in the next one.
    q.scales.push_back(quantizer.quantize({x.values.first(1024), 32, 32}).scales[0]);
    return q;
  };
  const QuantizedTensor expected = run(1, Target::scalar);
  for (const Target target : available_targets())
    for (const int threads : {1, 3}) {
      const QuantizedTensor got = run(threads, target);
      INFO(to_string(target) << ", threads " << threads << ", [" << x.rows << ", " << x.k << "]");
      CHECK(got.codes == expected.codes);
      CHECK(bits_of(got.scales) == bits_of(expected.scales));
      CHECK(got.e8m0 == expected.e8m0);
      CHECK(got.transposed->codes == expected.transposed->codes);
      CHECK(bits_of(got.transposed->inverse_scales) ==
            bits_of(expected.transposed->inverse_scales));
    }
}

}  // namespace

TEST_CASE("quantize: every preset equals its definition element by element", "[scaling]") {
  const std::vector<float> values = log_normal(128 * 256);
  const FloatMatrix x{values, 128, 256};
  for (const Preset& preset : presets())
    for (const TensorRole role :
         {TensorRole::activation, TensorRole::weight, TensorRole::gradient}) {
      const Recipe& recipe = preset.recipe(role);
      // Two levels have a test of their own.
      if (recipe.source != ScaleSource::current || is_two_level(recipe.rule)) continue;
      INFO(preset.name << " " << to_string(role));
      check_elementwise(recipe, x, quantize(recipe, x));
    }
}

TEST_CASE("quantize: tiles at the edge are smaller", "[scaling]") {
  const std::vector<float> values = log_normal(5 * 7);
  const FloatMatrix x{values, 5, 7};
  Recipe recipe{.row_block = 2, .k_block = 3};
  const QuantizedTensor q = quantize(recipe, x);
  CHECK(q.tile_rows() == 3);
  CHECK(q.tile_columns() == 3);
  CHECK(q.scales.size() == 9);
  check_elementwise(recipe, x, q);
}

TEST_CASE("quantize: threads change nothing", "[scaling]") {
  const std::vector<float> values = log_normal(300 * 512);
  const FloatMatrix x{values, 300, 512};
  for (const Recipe& recipe :
       {Recipe{}, Recipe{.row_block = 1, .k_block = 128}, Recipe{.row_block = 128, .k_block = 128}})
    CHECK(same(quantize(recipe, x, false, 1), quantize(recipe, x, false, 3)));
}

TEST_CASE("quantize: targets and threads change nothing", "[scaling]") {
  const std::vector<float> finite = log_normal(128 * 384);
  std::vector<float> special = any_bits(128 * 384);
  for (const Preset& preset : presets())
    for (const TensorRole role :
         {TensorRole::activation, TensorRole::weight, TensorRole::gradient}) {
      const Recipe& recipe = preset.recipe(role);
      INFO(preset.name << " " << to_string(role));
      check_targets(recipe, {finite, 128, 384});
      if (!is_calibrated(recipe)) check_targets(recipe, {special, 128, 384});
    }
}

TEST_CASE("quantize: targets agree on odd tiles and other casts", "[scaling]") {
  const std::vector<float> values = any_bits(67 * 211);
  for (const CastProfile& profile : kCastProfiles)
    for (const ScaleRule rule : {ScaleRule::te, ScaleRule::torchao, ScaleRule::deepseek})
      for (const auto& [rows, columns] : {std::pair{2, 3}, std::pair{5, 33}, std::pair{1, 130}}) {
        INFO(profile.name << " " << to_string(rule) << " " << rows << "x" << columns);
        check_targets(
            {.policy = profile.policy, .rule = rule, .row_block = rows, .k_block = columns},
            {values, 67, 211});
      }
}

TEST_CASE("quantize: large tensors are written around the caches", "[scaling]") {
  const std::vector<float> values = log_normal(1024 * 1056);
  for (const char* name :
       {"te-current", "te-delayed", "deepseek-v3", "torchao-rowwise", "ms-amp"}) {
    Recipe recipe = find_preset(name).activation;
    recipe.k_multiple = 1;
    INFO(name);
    check_targets(recipe, {values, 1024, 1056});
  }
  check_targets(find_preset("mxfp8-floor").weight, {values, 1024, 1056});
}

TEST_CASE("quantize: memory is used again", "[scaling]") {
  const std::vector<float> values = log_normal(64 * 64);
  Quantizer quantizer(find_preset("mxfp8-floor").activation);
  QuantizedTensor q;
  quantizer.quantize_into({values, 64, 64}, q, true);
  const std::uint8_t* codes = q.codes.data();
  const std::shared_ptr<const QuantizedTensor> kept = q.transposed;
  const CodeVector old = kept->codes;
  quantizer.quantize_into({std::span(values).first(32 * 64), 32, 64}, q, true);
  CHECK(q.codes.data() == codes);
  CHECK(same(q, quantizer.quantize({std::span(values).first(32 * 64), 32, 64})));
  CHECK(kept->codes == old);  // somebody else still holds it
  quantizer.quantize_into({values, 64, 64}, q);
  CHECK(q.transposed == nullptr);
}

TEST_CASE("quantize: the transposed copy is the quantized transpose", "[scaling]") {
  const std::vector<float> values = log_normal(128 * 256);
  const FloatMatrix x{values, 128, 256};
  const std::vector<float> turned = transpose(x);
  for (const char* name : {"te-current", "te-blockwise", "te-mxfp8", "torchao-rowwise"}) {
    const Recipe& recipe = find_preset(name).activation;
    const QuantizedTensor q = quantize(recipe, x, true);
    INFO(name);
    REQUIRE(q.transposed != nullptr);
    CHECK(same(*q.transposed, quantize(recipe, {turned, 256, 128})));
  }
  const QuantizedTensor q = quantize(Recipe{}, x, true);
  CHECK(q.transposed->codes[3 * 128 + 5] == q.codes[5 * 256 + 3]);
}

/// On every target and several threads, against the scalar quantization of x and of its transpose.
void check_transposed(const Recipe& recipe, std::span<const float> values, std::int64_t rows,
                      std::int64_t k) {
  const FloatMatrix x{values.first(static_cast<std::size_t>(rows * k)), rows, k};
  const std::vector<float> turned = transpose(x);
  const QuantizedTensor expected = quantize(recipe, {turned, k, rows}, false, 1, Target::scalar);
  const QuantizedTensor original = quantize(recipe, x, false, 1, Target::scalar);
  for (const Target target : available_targets())
    for (const int threads : {1, 3}) {
      INFO(to_string(recipe.rule) << " " << recipe.row_block << "x" << recipe.k_block << " on ["
                                  << rows << ", " << k << "], " << to_string(target) << ", threads "
                                  << threads);
      const QuantizedTensor q = quantize(recipe, x, true, threads, target);
      // In brackets: a failure would print two tensors.
      CHECK((q.codes == original.codes));
      CHECK((bits_of(q.scales) == bits_of(original.scales)));
      CHECK((bits_of(q.inverse_scales) == bits_of(original.inverse_scales)));
      CHECK((q.e8m0 == original.e8m0));
      CHECK((q.transposed->codes == expected.codes));
      CHECK((bits_of(q.transposed->scales) == bits_of(expected.scales)));
      CHECK((bits_of(q.transposed->inverse_scales) == bits_of(expected.inverse_scales)));
      CHECK((q.transposed->e8m0 == expected.e8m0));
    }
}

TEST_CASE("quantize: transposed copies of any shape", "[scaling]") {
  const std::vector<float> values = any_bits(530 * 611);
  for (const ScaleRule rule : {ScaleRule::te, ScaleRule::deepseek, ScaleRule::mx_even})
    for (const auto& [row_block, k_block] :
         {std::pair{1, 32}, std::pair{1, 128}, std::pair{1, 0}, std::pair{128, 128},
          std::pair{1, 7}, std::pair{2, 3}, std::pair{0, 1}, std::pair{300, 64},
          std::pair{1, 300}}) {
      const Recipe recipe{.rule = rule, .row_block = row_block, .k_block = k_block};
      check_transposed(recipe, values, 530, 611);
      check_transposed(recipe, values, 31, 1);
      check_transposed(recipe, values, 1, 47);
    }
  check_transposed({.policy = kSeedToy, .row_block = 1, .k_block = 128}, values, 300, 65);
  check_transposed(
      {.policy = {.rounding = RoundingMode::toward_zero}, .row_block = 1, .k_block = 32}, values,
      70, 65);
}

TEST_CASE("quantize: transposed copies of numbers that no scale makes too large", "[scaling]") {
  std::vector<float> values = log_normal(1088 * 1024);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -values[i];
  std::fill_n(values.begin() + 40 * 611, 300, 0.0F);
  // Blocks with and without what has no bound stand side by side.
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[200 * 611 + 300] = -std::numeric_limits<float>::infinity();
  const auto check = [&](const Recipe& recipe) {
    check_transposed(recipe, values, 530, 611);
    check_transposed(recipe, values, 64, 128);
    check_transposed(recipe, std::span(values).subspan(1), 100, 33);
  };
  using enum ScaleRule;
  for (const ScaleRule rule : {te, torchao, deepseek, deepgemm, quotient, quotient_bf16,
                               quotient_eps_bf16, fp32_scale_bf16, vllm_token, vllm_tensor})
    for (const bool power_of_two : {false, true})
      for (const std::int64_t block : {32, 96, 128, 192, 352, 0})
        if (!power_of_two || has_power_of_two(rule))
          check({.rule = rule, .row_block = 1, .k_block = block, .power_of_two = power_of_two});
  for (const ScaleRule rule :
       {mx_floor, mx_ceil, mx_even, mx_rceil, te_mx, torchao_mx_floor, torchao_mx_even,
        torchao_mx_rceil, compressed_mx, compressed_mx_bf16, modelopt_mxfp8, modelopt_mxfp4})
    for (const FormatId format : {FormatId::e4m3fn, FormatId::e5m2})
      check({.format = format, .rule = rule, .row_block = 1, .k_block = 32});
  for (const FormatId format :
       {FormatId::e4m3fnuz, FormatId::e5m2fnuz, FormatId::e2m3, FormatId::e2m1})
    check({.format = format, .row_block = 1, .k_block = 128});
  // Large enough for codes to be written around the caches, with rows on cache lines and without.
  for (const std::int64_t rows : {1024, 1040, 1088}) {
    check_transposed({.row_block = 1, .k_block = 128}, values, rows, 1024);
    check_transposed({.row_block = 128, .k_block = 128}, values, rows, 1024);
    check_transposed({.row_block = 0, .k_block = 0}, values, rows, 1024);
  }
}

TEST_CASE("quantize: a product that is zero is a zero", "[scaling]") {
  // seed_toy raises small numbers, but not a zero that was one before the product.
  std::vector<float> values(512, 1e-30F);
  for (std::size_t i = 0; i < values.size(); i += 32) values[i] = -1e30F;
  for (const std::int64_t block : {32, 33, 128, 130, 0})
    for (const Target target : available_targets()) {
      INFO("1x" << block << " " << to_string(target));
      const Recipe recipe{.policy = kSeedToy, .row_block = 1, .k_block = block};
      const QuantizedTensor q = quantize(recipe, {values, 2, 256}, false, 1, target);
      CHECK(q.codes[0] == 0xf7);
      CHECK(q.codes[1] == 0x00);
    }
}

TEST_CASE("quantize: MX scales of every binade", "[scaling]") {
  // One tile an amax: each exponent with mantissas where rules change their mind.
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (const std::uint32_t mantissa :
         {0u, 1u, 0x3fffffu, 0x400000u, 0x400001u, 0x5fffffu, 0x600000u, 0x600001u, 0x6fffffu,
          0x700000u, 0x77ffffu, 0x780000u, 0x7fffffu}) {
      values.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
      values.insert(values.end(), 31, 0.0F);
    }
  const auto rows = static_cast<std::int64_t>(values.size() / 416);
  for (const ScaleRule rule :
       {ScaleRule::mx_floor, ScaleRule::mx_ceil, ScaleRule::mx_even, ScaleRule::mx_rceil,
        ScaleRule::te_mx, ScaleRule::torchao_mx_floor, ScaleRule::torchao_mx_ceil,
        ScaleRule::torchao_mx_even, ScaleRule::torchao_mx_rceil, ScaleRule::compressed_mx,
        ScaleRule::compressed_mx6, ScaleRule::modelopt_mxfp8, ScaleRule::modelopt_mxfp4})
    for (const FormatId format : {FormatId::e4m3fn, FormatId::e5m2})
      for (const Target target : available_targets()) {
        const Recipe recipe{.format = format, .rule = rule, .row_block = 1, .k_block = 32};
        const QuantizedTensor q = quantize(recipe, {values, rows, 416}, false, 1, target);
        for (std::size_t t = 0; t < q.scales.size(); ++t) {
          const float largest = amax(std::span(values).subspan(32 * t, 32), amax_ignores_nan(rule));
          const TileScale expected = tile_scale({.rule = rule, .format = format}, largest);
          INFO(to_string(rule) << " " << to_string(target) << " amax "
                               << std::bit_cast<std::uint32_t>(largest));
          REQUIRE(q.e8m0[t] == expected.e8m0);
          REQUIRE(bits_of(q.scales[t]) == bits_of(expected.scale));
          REQUIRE(bits_of(q.inverse_scales[t]) == bits_of(expected.inverse_scale));
        }
      }
}

TEST_CASE("quantize: scales fit the product's layout", "[scaling]") {
  const std::vector<float> a_values = log_normal(16 * 256, 1);
  const std::vector<float> b_values = log_normal(128 * 256, 2);
  const Preset& preset = find_preset("deepgemm");
  const QuantizedTensor a = quantize(preset.activation, {a_values, 16, 256});
  const QuantizedTensor b = quantize(preset.weight, {b_values, 128, 256});
  GemmProblem problem;
  problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = a.matrix();
  problem.b = b.matrix();
  problem.a_scales = a.inverse();
  problem.b_scales = b.inverse();
  problem.promotion_interval = 128;
  std::vector<float> d(16 * 128);
  gemm_reference(problem, d);
  const std::vector<float> a_back = dequantize(a);
  const std::vector<float> b_back = dequantize(b);
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 128; ++j) {
      double exact = 0.0;
      for (std::size_t k = 0; k < 256; ++k)
        exact +=
            static_cast<double>(a_back[i * 256 + k]) * static_cast<double>(b_back[j * 256 + k]);
      error += std::pow(static_cast<double>(d[i * 128 + j]) - exact, 2);
      norm += exact * exact;
    }
  CHECK(std::sqrt(error / norm) < 1e-3);
  CHECK(std::sqrt(error / norm) > 0.0);
}

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
