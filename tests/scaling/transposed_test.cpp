// Transposed copies of quantized tensors.

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/cast/kernels/kernels.hpp"
#include "fp8lab/scaling/encode_transposed.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "scaling/tensors.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

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

}  // namespace

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

TEST_CASE("quantize: transposed copies of numbers that no scale makes too large",
          "[scaling][long]") {
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

TEST_CASE("quantize: a tile has the codes and scales that it has alone", "[scaling]") {
  // Work is cut into strips and blocks of other sizes than tiles: no cut may show.
  const auto check = [](const Recipe& recipe, const std::vector<float>& values, std::int64_t rows,
                        std::int64_t k) {
    const FloatMatrix x{std::span(values).first(static_cast<std::size_t>(rows * k)), rows, k};
    std::int64_t wrong = 0;
    for (const Target target : available_targets())
      for (const bool transposed : {false, true}) {
        const QuantizedTensor q = quantize(recipe, x, transposed, 2, target);
        REQUIRE((q.row_block == recipe.row_block && q.k_block == recipe.k_block));
        for (std::int64_t row = 0; row < rows; row += q.row_block)
          for (std::int64_t column = 0; column < k; column += q.k_block) {
            const std::int64_t down = std::min(q.row_block, rows - row);
            const std::int64_t across = std::min(q.k_block, k - column);
            std::vector<float> tile;
            for (std::int64_t r = 0; r < down; ++r)
              tile.insert(tile.end(), x.values.begin() + (row + r) * k + column,
                          x.values.begin() + (row + r) * k + column + across);
            Recipe whole = recipe;
            whole.row_block = whole.k_block = 0;
            const QuantizedTensor alone =
                quantize(whole, {tile, down, across}, false, 1, Target::scalar);
            const auto at =
                static_cast<std::size_t>(row / q.row_block * q.tile_columns() + column / q.k_block);
            wrong += bits_of(q.scales[at]) != bits_of(alone.scales[0]);
            wrong += bits_of(q.inverse_scales[at]) != bits_of(alone.inverse_scales[0]);
            for (std::int64_t r = 0; r < down; ++r)
              wrong += !std::equal(alone.codes.begin() + r * across,
                                   alone.codes.begin() + (r + 1) * across,
                                   q.codes.begin() + (row + r) * k + column);
          }
      }
    INFO(recipe.row_block << "x" << recipe.k_block << " on [" << rows << ", " << k << "]");
    CHECK(wrong == 0);
  };
  const std::vector<float> values = any_bits(450 * 611);
  for (const auto& [row_block, k_block] : {std::pair{3, 7}, std::pair{5, 64}, std::pair{48, 16},
                                           std::pair{100, 33}, std::pair{128, 128}})
    for (const auto& [rows, k] : {std::pair{450, 61}, std::pair{450, 128}, std::pair{140, 611}})
      check({.row_block = row_block, .k_block = std::min(k_block, k)}, values, rows, k);
  // Rows of several pieces, the last of which is short.
  for (const std::int64_t k_block : {16, 100, 128})
    for (const auto& [rows, k] : {std::pair{5, 9000}, std::pair{3, 4096 + 16}})
      check({.row_block = 1, .k_block = k_block}, values, rows, k);
  // Rows of tall tiles that are longer than a strip, which ends with a tile.
  check({.row_block = 128, .k_block = 96}, any_bits(128 * 4300), 128, 4300);
}

TEST_CASE("quantize: amaxes that are too large under their scales become the largest number",
          "[scaling]") {
  struct Case {
    FormatId format;
    float first;  // the smallest amax of its binade that would be rounded to more than that
    std::uint8_t largest;
  };
  for (const Case& c : {Case{FormatId::e5m2, 1.875F, 0x7b},
                        Case{FormatId::e4m3fn, std::nextafter(1.8125F, 2.0F), 0x7e}})
    for (const float amax : {std::nextafter(c.first, 0.0F), c.first, std::nextafter(c.first, 2.0F),
                             std::nextafter(2.0F, 0.0F)})
      for (const int exponent : {0, -20}) {
        const Recipe recipe{
            .format = c.format, .rule = ScaleRule::mx_floor, .row_block = 1, .k_block = 32};
        const std::vector<float> x(64 * 64, std::ldexp(amax, exponent));
        for (const Target target : available_targets())
          for (const bool transposed : {false, true}) {
            INFO(to_string(target) << ", " << amax << " * 2^" << exponent << ", " << transposed);
            const QuantizedTensor q = quantize(recipe, {x, 64, 64}, transposed, 1, target);
            const auto all = static_cast<std::ptrdiff_t>(x.size());
            CHECK(std::count(q.codes.begin(), q.codes.end(), c.largest) == all);
            if (!transposed) continue;
            const auto& turned = q.transposed->codes;
            CHECK(std::count(turned.begin(), turned.end(), c.largest) == all);
          }
      }
}

TEST_CASE("quantize: transposed copies of tiles of any width", "[scaling]") {
  const std::vector<float> values = log_normal(35 * 700);
  for (std::int64_t k_block = 8; k_block <= 400; k_block += 8) {
    check_transposed({.row_block = 1, .k_block = k_block}, values, 35, 700);
    // Kernels take whole steps, which are longer on some targets than on others.
    QuantizedTensor q;
    q.row_block = 1;
    q.k_block = k_block;
    q.rows = 35;
    q.k = 700;
    QuantizedTensor turned = q;
    std::swap(turned.rows, turned.k);
    if (!scaling_detail::CrossBlocks::fit(q, turned)) continue;
    const scaling_detail::CrossBlocks blocks(q, turned, 1);
    INFO("tiles of " << k_block << " in blocks of " << blocks.columns);
    CHECK(blocks.columns % static_cast<std::int64_t>(cast_kernels::kCrossStep) == 0);
    CHECK(blocks.columns % blocks.tile == 0);
    CHECK(blocks.tiles * blocks.tile == blocks.columns);
  }
}
