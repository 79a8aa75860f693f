// NVFP4: two levels of scales. The formulas of systems are checked against NumPy by
// tests/python/fp4_oracle.py and against the packages by tests/systems; here what a C++ user sees.

#include "fp8lab/scaling/two_level.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/nvfp4_training.hpp"
#include "fp8lab/scaling/presets.hpp"

using namespace fp8lab;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal(std::int64_t count) {
  const RandomStream stream(11, "two levels");
  std::vector<float> x;
  for (std::int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return x;
}

/// With an upper level from a sample of 12.
Quantizer calibrated(ScaleRule rule) {
  Quantizer quantizer(Recipe{.format = FormatId::e2m1,
                             .rule = rule,
                             .source = ScaleSource::calibration,
                             .row_block = 1,
                             .k_block = 16});
  const float samples = 12.0F;
  quantizer.observe({{&samples, 1}, 1, 1});
  return quantizer;
}

}  // namespace

TEST_CASE("two levels: a tensor whose numbers need no rounding keeps them", "[scaling]") {
  // Amax 2688: the tensor's scale is 1. The first tile's scale is 448, the second's 2.
  std::vector<float> x(32, 0.0F);
  x[0] = 2688.0F;
  x[1] = -448.0F * 1.5F;
  x[16] = 12.0F;
  x[17] = -1.0F;
  for (const ScaleRule rule :
       {ScaleRule::nvfp4, ScaleRule::te_nvfp4, ScaleRule::torchao_nvfp4,
        ScaleRule::compressed_nvfp4, ScaleRule::compressed_nvfp4_bf16, ScaleRule::modelopt_nvfp4,
        ScaleRule::serving_nvfp4, ScaleRule::te_4over6_mae, ScaleRule::te_4over6_mse}) {
    INFO(to_string(rule));
    const Recipe recipe{.format = FormatId::e2m1, .rule = rule, .row_block = 1, .k_block = 16};
    const QuantizedTensor q = quantize(recipe, {x, 1, 32});
    CHECK(q.tensor_inverse_scale == 1.0F);
    CHECK(q.inverse_scales == std::vector<float>{448.0F, 2.0F});
    CHECK(q.ue4m3 == std::vector<std::uint8_t>{0x7e, 0x40});
    CHECK(q.e8m0.empty());
    CHECK(q.codes[0] == 7);
    CHECK(q.codes[1] == 0xb);
    CHECK(q.codes[16] == 7);
    CHECK(q.codes[17] == 0x9);
    CHECK(dequantize(q) == x);
    CHECK(q.scale_bytes() == 2 + 4);
    const InverseScales scales = q.inverse();
    CHECK(scales.format == FormatId::e4m3fn);
    CHECK(scales.k_block == 16);
  }
}

TEST_CASE("two levels: zeros, infinities and NaN", "[scaling]") {
  CHECK(tensor_scale(ScaleRule::nvfp4, 0.0F).scale == 1.0F);
  CHECK(tensor_scale(ScaleRule::te_nvfp4, kInfinity).scale == 1.0F);
  CHECK(tensor_scale(ScaleRule::nvfp4, 0x1p-140F).scale == std::numeric_limits<float>::max());
  CHECK(tensor_scale(ScaleRule::compressed_nvfp4, kNan).scale == 1.0F);
  CHECK(tensor_scale(ScaleRule::torchao_nvfp4, 0.0F).inverse_scale == 0.0F);
  CHECK(std::isnan(tensor_scale(ScaleRule::modelopt_nvfp4, kNan).inverse_scale));
  const TensorScale one{1.0F, 1.0F};
  CHECK(two_level_scale(ScaleRule::nvfp4, one, 0.0F).code == 0);
  CHECK(two_level_scale(ScaleRule::nvfp4, one, 0.0F).factor == std::numeric_limits<float>::max());
  CHECK(two_level_scale(ScaleRule::torchao_nvfp4, one, 0.0F).inverse_scale == 0x1p-6F);
  CHECK(two_level_scale(ScaleRule::compressed_nvfp4, one, 0.0F).inverse_scale == 0.125F);
  CHECK(two_level_scale(ScaleRule::modelopt_nvfp4, one, 0.0F).inverse_scale == 1.0F);
  CHECK(two_level_scale(ScaleRule::nvfp4, one, kInfinity).code == 0x7e);
  CHECK(two_level_scale(ScaleRule::torchao_nvfp4, one, kNan).code == 0x7f);
}

TEST_CASE("two levels: 4over6 takes the scale that leaves the smaller error", "[scaling]") {
  // Amax 1536 = 6 * 256: the tensor's scale is 1, and tiles of amax 6 may have 1 or 1.5.
  const auto quantized = [](ScaleRule rule, const std::vector<float>& tile) {
    std::vector<float> x(32, 0.0F);
    x[0] = 1536.0F;
    std::copy(tile.begin(), tile.end(), x.begin() + 16);
    return quantize({.format = FormatId::e2m1, .rule = rule, .row_block = 1, .k_block = 16},
                    {x, 1, 32});
  };
  const auto scale = [&](ScaleRule rule, const std::vector<float>& tile) {
    return quantized(rule, tile).inverse_scales[1];
  };
  using enum ScaleRule;
  for (const ScaleRule rule : {te_4over6_mae_256, te_4over6_mse_256}) {
    INFO(to_string(rule));
    CHECK(scale(rule, {6.0F, 4.5F}) == 1.5F);  // 4.5 is no element under 1
    CHECK(scale(rule, {6.0F, 3.0F}) == 1.0F);  // both are exact: 6
    CHECK(scale(rule, {6.0F, 1.0F}) == 1.0F);
    CHECK(quantized(rule, {6.0F, -4.5F}).codes[17] == 8 + 5);
    CHECK(quantized(rule, {6.0F, 4.5F}).tensor_inverse_scale == 1.0F);
    // Beside a NaN and under an infinity no error is smaller.
    CHECK(scale(rule, {6.0F, 4.5F, kNan}) == 1.0F);
    CHECK(scale(rule, {kInfinity, 4.5F}) == 448.0F);
  }
  // Errors under 1: four of 0.25. Under 1.5: one of 0.75.
  const std::vector<float> tile{6.0F, 3.75F, 0.75F, 0.75F, 0.75F};
  CHECK(scale(te_4over6_mae_256, tile) == 1.5F);
  CHECK(scale(te_4over6_mse_256, tile) == 1.0F);
  CHECK(quantized(te_4over6_mae, tile).tensor_inverse_scale == 1.0F / (2688.0F / 1536.0F));
}

TEST_CASE("two levels: 4over6 of a square adds the errors of its rows", "[scaling]") {
  std::vector<float> x(256, 0.0F);
  x[0] = 6.0F;
  x[1] = 4.5F;
  Recipe recipe{.format = FormatId::e2m1,
                .rule = ScaleRule::te_4over6_mae_256,
                .row_block = 16,
                .k_block = 16};
  const auto code = [&] { return quantize(recipe, {x, 16, 16}).codes[1]; };
  CHECK(code() == 5);  // 3 * 1.5
  x[255] = 1.0F;       // 0.75 is next to it under 1.5, which is still less than 4.5 loses
  CHECK(code() == 5);
  for (const std::size_t at : {129U, 200U, 31U}) x[at] = 1.0F;
  CHECK(code() == 6);
  recipe.row_block = 8;
  CHECK_THROWS_WITH(Quantizer(recipe), contains("block: expected 1x16 or 16x16"));
  recipe.row_block = 1;
  CHECK_THROWS_WITH(quantize_stochastic(recipe, {x, 16, 16}, RandomStream(1, "4over6")),
                    contains("recipe: expected one without 4over6"));
}

TEST_CASE("two levels: serving casts multiply by reciprocals that flush", "[scaling]") {
  using enum ScaleRule;
  const TensorScale one = tensor_scale(serving_nvfp4, 2688.0F);
  CHECK(one.scale == 1.0F);
  CHECK(two_level_scale(serving_nvfp4, one, 12.0F).factor == 0.5F);
  CHECK(two_level_scale(serving_nvfp4, one, 0.0F).factor == 0.0F);
  // 1 / S is subnormal here: 0 to the instruction, whose reciprocal is Inf.
  const float amax = 0x1p-115F;
  CHECK(two_level_scale(serving_nvfp4, tensor_scale(serving_nvfp4, amax), amax).factor ==
        kInfinity);
  CHECK(std::isfinite(two_level_scale(nvfp4, tensor_scale(nvfp4, amax), amax).factor));
}

TEST_CASE("two levels: a NaN is in its own tile, and in the tensor's scale where systems keep it",
          "[scaling]") {
  using enum ScaleRule;
  for (const auto& [rule, ignores_nan] : {std::pair{nvfp4, true},
                                          {te_nvfp4, true},
                                          {torchao_nvfp4, false},
                                          {compressed_nvfp4, false},
                                          {compressed_nvfp4_bf16, false},
                                          {modelopt_nvfp4, false},
                                          {serving_nvfp4, true}})
    for (const float sign : {1.0F, -1.0F})
      for (const std::size_t at : {std::size_t{0}, std::size_t{39}, std::size_t{95}}) {
        INFO(to_string(rule) << ", " << sign << " NaN at " << at);
        const Recipe recipe{.format = FormatId::e2m1, .rule = rule, .row_block = 1, .k_block = 16};
        std::vector<float> x(96, 0.5F);
        x[20] = -12.0F;
        x[at] = std::copysign(kNan, sign);
        const QuantizedTensor got = quantize(recipe, {x, 3, 32});
        const float amax = ignores_nan ? 12.0F : kNan;
        const TensorScale tensor = tensor_scale(rule, amax);
        if (std::isnan(tensor.inverse_scale))
          CHECK(std::isnan(got.tensor_inverse_scale));
        else
          CHECK(got.tensor_inverse_scale == tensor.inverse_scale);
        if (!ignores_nan) continue;
        x[at] = 0.5F;
        const QuantizedTensor without = quantize(recipe, {x, 3, 32});
        CHECK(got.tensor_inverse_scale == without.tensor_inverse_scale);
        CHECK(got.ue4m3 == without.ue4m3);
        for (std::size_t i = 0; i < x.size(); ++i)
          if (i != at) CHECK(int{got.codes[i]} == int{without.codes[i]});
      }
}

TEST_CASE("two levels: neither threads nor the target change bits", "[scaling]") {
  const std::vector<float> x = normal(48 * 112);
  for (const char* name : {"nvfp4", "te-nvfp4", "modelopt-nvfp4"}) {
    const Recipe& recipe = find_preset(name).weight;
    const QuantizedTensor expected = quantize(recipe, {x, 48, 112}, false, 1, Target::scalar);
    for (const int threads : {1, 3}) {
      const QuantizedTensor q = quantize(recipe, {x, 48, 112}, false, threads);
      CHECK(q.codes == expected.codes);
      CHECK(q.ue4m3 == expected.ue4m3);
      CHECK(q.tensor_inverse_scale == expected.tensor_inverse_scale);
    }
  }
}

TEST_CASE("two levels: square tiles are those of the transpose", "[scaling]") {
  const std::vector<float> x = normal(32 * 48);
  const QuantizedTensor q = quantize(find_preset("te-nvfp4").weight, {x, 32, 48}, true);
  REQUIRE(q.transposed);
  CHECK(q.transposed->ue4m3.size() == q.ue4m3.size());
  for (std::size_t r = 0; r < 32; ++r)
    for (std::size_t c = 0; c < 48; ++c) {
      CHECK(q.transposed->codes[c * 32 + r] == q.codes[r * 48 + c]);
      CHECK(q.transposed->ue4m3[c / 16 * 2 + r / 16] == q.ue4m3[r / 16 * 3 + c / 16]);
    }
}

TEST_CASE("two levels: what a recipe cannot have is refused", "[scaling]") {
  const Recipe good{
      .format = FormatId::e2m1, .rule = ScaleRule::nvfp4, .row_block = 1, .k_block = 16};
  const auto with = [&](auto change) {
    Recipe recipe = good;
    change(recipe);
    return recipe;
  };
  CHECK_NOTHROW(Quantizer(good));
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.format = FormatId::e4m3fn; })),
                    contains("e2m1"));
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.k_block = 0; })), contains("tiles along k"));
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.source = ScaleSource::momentum; })),
                    contains("source"));
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.power_of_two = true; })),
                    contains("power_of_two"));
  CHECK_THROWS_WITH(
      Quantizer(with([](Recipe& r) { r.amax_floor = 0x1p-149F; })),
      "power_of_two and amax_floor: expected their defaults for rule nvfp4, which has "
      "no such options, got others");
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.k_block = 0; })),
                    "block: expected tiles along k (16 in NVFP4), since scales have two levels, "
                    "got 1x0");
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.source = ScaleSource::momentum; })),
                    "source: expected current or calibration for rule nvfp4, got momentum");
  CHECK_THROWS_WITH(Quantizer(with([](Recipe& r) { r.format = FormatId::e2m3; })),
                    "format: expected e2m1 for rule nvfp4, got e2m3");
  CHECK_THROWS_WITH(tensor_scale(ScaleRule::te, 1.0F), contains("two levels"));
  CHECK_THROWS_WITH(tile_scale({.rule = ScaleRule::nvfp4, .format = FormatId::e2m1}, 1.0F),
                    contains("one level"));
  CHECK_THROWS_WITH(tile_scale({.rule = ScaleRule::mx_floor, .format = FormatId::e4m3fnuz}, 1.0F),
                    contains("e2m1"));
}

TEST_CASE("two levels: a calibrated upper level is that of the samples, tiles keep their own",
          "[scaling]") {
  Recipe recipe{.format = FormatId::e2m1,
                .rule = ScaleRule::nvfp4,
                .source = ScaleSource::calibration,
                .row_block = 1,
                .k_block = 16};
  std::vector<float> x(32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.25F * static_cast<float>(i % 7) - 0.5F;
  Quantizer quantizer(recipe);
  CHECK_THROWS_WITH(quantizer.quantize({x, 2, 16}), contains("at least one tensor"));
  const float samples = 12.0F;
  quantizer.observe({{&samples, 1}, 1, 1});
  const QuantizedTensor got = quantizer.quantize({x, 2, 16});
  const TensorScale tensor = tensor_scale(recipe.rule, samples);
  CHECK(got.tensor_inverse_scale == tensor.inverse_scale);
  for (std::size_t row = 0; row < 2; ++row) {
    const float largest = amax(std::span(x).subspan(16 * row, 16), true);
    CHECK(got.ue4m3[row] == two_level_scale(recipe.rule, tensor, largest).code);
  }
  // The tensor with a sample's amax in it has the same codes for the rest.
  recipe.source = ScaleSource::current;
  std::vector<float> more = x;
  more.resize(48);
  more.back() = samples;
  const QuantizedTensor want = quantize(recipe, {more, 3, 16});
  CHECK(std::equal(got.codes.begin(), got.codes.end(), want.codes.begin()));
}

TEST_CASE("two levels: a tile with an infinity has the largest scale, NaN is passed on or left out",
          "[scaling]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [rule, amax_of_nan] :
       {std::pair{ScaleRule::nvfp4, 1.0F}, {ScaleRule::modelopt_nvfp4, nan}}) {
    INFO(to_string(rule));
    Quantizer quantizer = calibrated(rule);
    std::vector<float> x(48, 1.0F);
    x[5] = -kInfinity;
    x[16] = std::numeric_limits<float>::max();
    x[47] = nan;
    const QuantizedTensor got = quantizer.quantize({x, 3, 16});
    const TensorScale tensor = tensor_scale(rule, 12.0F);
    CHECK(int{got.ue4m3[0]} == int{two_level_scale(rule, tensor, kInfinity).code});
    CHECK(int{got.ue4m3[0]} == 0x7e);
    CHECK(int{got.ue4m3[1]} == 0x7e);
    CHECK(int{got.ue4m3[2]} == int{two_level_scale(rule, tensor, amax_of_nan).code});
  }
}

TEST_CASE("two levels: a tensor used again keeps no transpose of what was in it", "[scaling]") {
  const std::vector<float> first = normal(32 * 48);
  std::vector<float> second = first;
  for (float& x : second) x *= -1.5F;
  for (const char* name : {"nvfp4", "te-nvfp4"}) {
    INFO(name);
    Quantizer quantizer(find_preset(name).weight);
    QuantizedTensor q;
    quantizer.quantize_into({first, 32, 48}, q, true);
    REQUIRE(q.transposed);
    const std::shared_ptr<const QuantizedTensor> kept = q.transposed;
    const CodeVector old = kept->codes;
    quantizer.quantize_into({second, 32, 48}, q, true);
    REQUIRE(q.transposed);
    const QuantizedTensor turned = quantizer.quantize({transpose({second, 32, 48}), 48, 32});
    CHECK((q.transposed->codes == turned.codes));
    CHECK((q.transposed->ue4m3 == turned.ue4m3));
    CHECK(q.transposed->tensor_inverse_scale == turned.tensor_inverse_scale);
    CHECK((kept->codes == old));  // somebody else still holds it
    quantizer.quantize_into({first, 32, 48}, q);
    CHECK(q.transposed == nullptr);
  }
}

TEST_CASE("random Hadamard transform: a single element becomes its row of signs", "[scaling]") {
  constexpr std::array<int, 16> kSigns{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (std::size_t at = 0; at < 96; ++at) {
    std::vector<float> x(96, 0.0F);
    x[at] = 12.0F;
    const std::vector<float> y = random_hadamard({x, 3, 32});
    REQUIRE(y.size() == 96);
    for (std::size_t j = 0; j < 96; ++j) {
      float expected = 0.0F;
      if (j / 16 == at / 16) {
        bool minus = kSigns[at % 16] < 0;
        for (std::size_t both = at & j & 15; both != 0; both >>= 1) minus ^= both % 2 == 1;
        expected = minus ? -3.0F : 3.0F;
      }
      INFO("from " << at << " to " << j);
      CHECK(y[j] == expected);
    }
  }
}

TEST_CASE("random Hadamard transform: sums are rounded to BF16, NaN stays in its run",
          "[scaling]") {
  std::vector<float> x(32, 0.0F);
  x[0] = 256.0F;
  x[16] = 256.0F;
  x[17] = 3.0F;
  std::vector<float> y = random_hadamard({x, 1, 32});
  CHECK(y[0] == 64.0F);
  CHECK(y[16] == 65.0F);  // 64.75: a tie
  CHECK(y[17] == 63.25F);
  x[16] = kNan;
  y = random_hadamard({x, 2, 16});
  for (std::size_t j = 0; j < 16; ++j) CHECK(y[j] == 64.0F);
  for (std::size_t j = 16; j < 32; ++j) CHECK(std::isnan(y[j]));
  // Sums go from the first element to the last: 2^-30 is lost beside 1, not beside 0.
  std::vector<float> order(16, 0.0F);
  order[0] = 0x1p-30F;
  order[1] = 1.0F;
  order[2] = -1.0F;
  CHECK(random_hadamard({order, 1, 16})[0] == 0.0F);
  order[0] = 1.0F;
  order[1] = -1.0F;
  order[2] = 0x1p-30F;
  CHECK(random_hadamard({order, 1, 16})[0] == 0x1p-32F);
}

TEST_CASE("random Hadamard transform: what it cannot take is named", "[scaling]") {
  const std::vector<float> x(48, 1.0F);
  CHECK(random_hadamard({{}, 0, 16}).empty());
  CHECK(random_hadamard({{}, 3, 0}).empty());
  CHECK_THROWS_WITH(random_hadamard({std::span(x).first(19), 3, 16}),
                    contains("x: expected [3, 16] values, got 19"));
  CHECK_THROWS_WITH(random_hadamard({x, 2, 16}), contains("x: expected [2, 16] values, got 48"));
  CHECK_THROWS_WITH(random_hadamard({x, -3, -16}), contains("[-3, -16] values"));
  CHECK_THROWS_WITH(random_hadamard({{}, -1, 0}), contains("[-1, 0] values"));
  CHECK_THROWS_WITH(random_hadamard({{}, 0, -16}), contains("[0, -16] values"));
  CHECK_THROWS_WITH(random_hadamard({x, 2, 24}), contains("x: expected k divisible by 16, got 24"));
  std::vector<float> fine = x;
  fine[47] = 1.0F + 0x1p-8F;
  CHECK_THROWS_WITH(random_hadamard({fine, 3, 16}),
                    contains("x: expected BF16 numbers, got 1.0039062"));
  fine[47] = 1.0F + 0x1p-7F;
  CHECK_NOTHROW(random_hadamard({fine, 3, 16}));
}

TEST_CASE("two levels: rounded stochastically, an element goes up by its own draw", "[scaling]") {
  // The tensor's scale is 1, and so are those of tiles: only the first of a row has 448.
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kColumns = 64;
  std::vector<float> x(kRows * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 16 == 0 ? 6.0F : i % 3 == 0 ? 4.5F : i % 3 == 1 ? -1.125F : 2.0F;
    if (i % kColumns < 16) x[i] = i % 16 == 0 ? 2688.0F : 0.0F;
  }
  const Recipe recipe = find_preset("nvfp4").activation;
  const FloatMatrix matrix{x, kRows, kColumns};
  const RandomStream draws(5, "stochastic elements");
  const QuantizedTensor got = quantize_stochastic(recipe, matrix, draws, 2);
  const QuantizedTensor nearest = quantize(recipe, matrix);
  CHECK((got.ue4m3 == nearest.ue4m3));
  CHECK(got.tensor_inverse_scale == 1.0F);
  CHECK((got.codes == quantize_stochastic(recipe, matrix, draws, 1).codes));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool up = draws.bits32(i) >= 0xc0000000U;  // a quarter of a step is left in each case
    const int expected = i % 16 == 0         ? 7
                         : i % kColumns < 16 ? 0
                         : i % 3 == 0        ? (up ? 7 : 6)
                         : i % 3 == 1        ? (up ? 0xb : 0xa)
                                             : 4;
    INFO("element " << i << ", draw " << draws.bits32(i));
    CHECK(int{got.codes[i]} == expected);
  }
  CHECK_THROWS_WITH(quantize_stochastic(Recipe{}, matrix, draws),
                    contains("recipe: expected one with two levels of scales (NVFP4), got te"));
}

TEST_CASE("two levels: scales of tiles at both ends of each rule's range", "[scaling]") {
  using enum ScaleRule;
  const TensorScale one{1.0F, 1.0F};
  struct Case {
    ScaleRule rule;
    float least;  // of a tile's scale; 0: a zero's code
    float of_zero;
  };
  for (const Case& c : {Case{nvfp4, 0.0F, 0.0F},
                        {te_nvfp4, 0.0F, 0.0F},
                        {torchao_nvfp4, 0x1p-6F, 0x1p-6F},
                        {compressed_nvfp4, 0.125F, 0.125F},
                        {compressed_nvfp4_bf16, 0.125F, 0.125F},
                        {modelopt_nvfp4, 0x1p-9F, 1.0F}}) {
    INFO(to_string(c.rule));
    const auto scale = [&](float amax) { return two_level_scale(c.rule, one, amax).inverse_scale; };
    CHECK(scale(0.0F) == c.of_zero);
    CHECK(scale(0x1p-20F) == c.least);
    CHECK(scale(6.0F) == 1.0F);
    CHECK(scale(6.0F * 448.0F) == 448.0F);
    CHECK(scale(6.0F * 480.0F) == 448.0F);
    CHECK(scale(kInfinity) == 448.0F);
    CHECK(std::isnan(scale(kNan)));
    if (c.rule == torchao_nvfp4) continue;
    CHECK(scale(6.0F * 0x1p-9F) == 0x1p-9F);
    CHECK(scale(6.0F * 0x1p-8F) == 0x1p-8F);
  }
}

TEST_CASE("two levels: a calibrated upper level is the transpose's too", "[scaling]") {
  constexpr std::int64_t kRows = 32;
  constexpr std::int64_t kColumns = 48;
  const RandomStream random(6, "calibrated");
  std::vector<float> x;
  std::vector<float> turned(kRows * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    x.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
    turned[static_cast<std::size_t>(i % kColumns * kRows + i / kColumns)] = x.back();
  }
  for (const ScaleRule rule : {ScaleRule::nvfp4, ScaleRule::modelopt_nvfp4}) {
    Quantizer quantizer = calibrated(rule);
    const QuantizedTensor both = quantizer.quantize({x, kRows, kColumns}, true);
    const QuantizedTensor want = quantizer.quantize({turned, kColumns, kRows});
    INFO(to_string(rule));
    REQUIRE(both.transposed);
    CHECK(both.transposed->tensor_inverse_scale == both.tensor_inverse_scale);
    CHECK(both.transposed->tensor_inverse_scale == want.tensor_inverse_scale);
    CHECK(both.transposed->ue4m3 == want.ue4m3);
    CHECK(both.transposed->codes == want.codes);
  }
}
