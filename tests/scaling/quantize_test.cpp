#include "fp8lab/scaling/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "message_of.hpp"
#include "scaling/tensors.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

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

TEST_CASE("quantize: targets and threads change nothing", "[scaling][long]") {
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

TEST_CASE("tile kernels: products and quotients of all elements, and nothing beyond them",
          "[scaling]") {
  const std::vector<float> factors{3.0F, -0.75F, 0x1p-126F, 448.0F, 0x1p100F, 0.1F, 7.0F, -1e-3F};
  const std::vector<float> values = any_bits(2148);
  for (const Target target : available_targets())
    for (std::size_t count = 0; count <= 40; ++count)
      for (const std::size_t block : {std::size_t{5}, std::size_t{16}, std::size_t{40}}) {
        std::vector<float> x(values.begin() + 2100, values.begin() + 2148);
        if (count > 7) x[7] = -std::numeric_limits<float>::quiet_NaN();
        for (const bool divide : {false, true}) {
          const scaling_detail::TileKernels& kernels = scaling_detail::tile_kernels(target);
          std::vector<float> got(48, -123.0F);
          (divide ? kernels.divide : kernels.multiply)(x.data(), count, block, factors.data(),
                                                       got.data());
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < got.size(); ++i) {
            const float factor = factors[i / block % factors.size()];
            float expected = divide ? x[i] / factor : x[i] * factor;
            if (std::isnan(expected)) expected = std::bit_cast<float>(0x7fffffffU);
            if (i >= count) expected = -123.0F;
            wrong += bits_of(got[i]) != bits_of(expected);
          }
          INFO(to_string(target) << ": " << count << " elements in tiles of " << block
                                 << (divide ? ", divided" : ", multiplied"));
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("statistics: each figure of a small tensor", "[scaling]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{448.0F, 1.0F,  0.0F, 0x1p-12F, 500.0F, 0.5F, 2.0F, -1.0F,
                             kNan,   0.25F, 0.0F, 0.0F,     0.0F,   0.0F, 0.0F, -0.0F};
  QuantizedTensor q;
  q.rows = 2;
  q.k = 8;
  q.k_block = 4;
  q.scales = {1.0F, 2.0F, 4.0F, 8.0F};
  q.inverse_scales = {1.0F, 0.5F, 0.25F, 0.125F};
  q.codes = {0x7e, 0x38, 0x00, 0x00, 0x7e, 0x38, 0x48, 0xc0,
             0x7f, 0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80};
  const QuantizationStatistics s = quantization_statistics({x, 2, 8}, q);
  CHECK(s.count == 16);
  CHECK(s.underflow_percent == 6.25);
  CHECK(s.overflow_percent == 6.25);
  CHECK(s.saturated_percent == 12.5);
  CHECK(s.nan_percent == 6.25);
  const double xx = 448.0 * 448.0 + 1.0 + 0x1p-24 + 250000.0 + 0.25 + 4.0 + 1.0 + 0.0625;
  const double dd = 0x1p-24 + 276.0 * 276.0;
  CHECK(std::abs(s.relative_l2 / std::sqrt(dd / xx) - 1.0) < 1e-12);
  CHECK(std::abs(s.sqnr_db - 10.0 * std::log10(xx / dd)) < 1e-9);
  CHECK(s.scale_min == 1.0);
  CHECK(s.scale_max == 8.0);
  CHECK(std::abs(s.tile_range_max - (std::log2(448.0) + 12.0)) < 1e-12);
  CHECK(std::abs(s.tile_range_mean - (std::log2(448.0) + 12.0 + std::log2(1000.0)) / 3.0) < 1e-12);
  CHECK(s.scale_overhead_percent == 100.0);

  q.scales = {INFINITY, 5.0F, kNan, 3.0F};
  q.e8m0 = {1, 2, 3, 4};
  const QuantizationStatistics coded = quantization_statistics({x, 2, 8}, q);
  CHECK(coded.scale_min == 3.0);
  CHECK(coded.scale_max == 5.0);
  CHECK(coded.scale_overhead_percent == 25.0);
  q.scales.assign(4, INFINITY);
  CHECK(quantization_statistics({x, 2, 8}, q).scale_min == 0.0);
  CHECK(quantization_statistics({x, 2, 8}, q).scale_max == 0.0);
  q.scales = {2.0F, 0.0F, 3.0F, kNan};  // a scale of zero is one
  CHECK(quantization_statistics({x, 2, 8}, q).scale_min == 0.0);
  CHECK(quantization_statistics({x, 2, 8}, q).scale_max == 3.0);

  // The same elements in tiles of two rows: what was apart shares a range.
  q.row_block = 2;
  q.scales = {1.0F, 2.0F};
  q.inverse_scales = {1.0F, 0.5F};
  const QuantizationStatistics tall = quantization_statistics({x, 2, 8}, q);
  CHECK(std::abs(tall.tile_range_mean - (std::log2(448.0) + 12.0 + std::log2(1000.0)) / 2.0) <
        1e-12);
  CHECK(tall.overflow_percent == 6.25);

  CHECK(quantization_statistics({{}, 0, 8}, quantize(Recipe{}, {{}, 0, 8})).count == 0);
  CHECK_THROWS_WITH(quantization_statistics({x, 1, 16}, q),
                    contains("x: expected [2, 8], as the quantized tensor, got [1, 16]"));
  CHECK_THROWS_WITH(quantization_statistics({x, 8, 2}, q), contains("got [8, 2]"));
  CHECK_THROWS_AS(quantization_statistics({std::span(x).first(8), 2, 8}, q), Error);
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
  problem.scale_a = a.inverse();
  problem.scale_b = b.inverse();
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

TEST_CASE("quantize: a backend is given every element as the recipe scales it", "[scaling]") {
  const std::vector<float> values = log_normal(37 * 410, 5);
  const FloatMatrix x{values, 37, 410};
  std::vector<float> given;
  const Backend backend{.name = "recording",
                        .cast = [&](FormatId, const CastPolicy&, std::span<const float> scaled,
                                    std::span<std::uint8_t> codes) {
                          given.insert(given.end(), scaled.begin(), scaled.end());
                          for (std::size_t i = 0; i < codes.size(); ++i)
                            codes[i] = static_cast<std::uint8_t>(i % 241);
                          return true;
                        }};
  /// What the backend is to see of `m` under the scales of `q`.
  const auto expected_of = [](ScaleRule rule, const FloatMatrix& m, const QuantizedTensor& q) {
    std::vector<float> expected;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.k; ++c) {
        const auto tile =
            static_cast<std::size_t>(r / q.row_block * q.tile_columns() + c / q.k_block);
        expected.push_back(scaled_element(rule, m.values[static_cast<std::size_t>(r * m.k + c)],
                                          {q.scales[tile], q.inverse_scales[tile], 0}));
      }
    return expected;
  };
  const std::vector<float> turned = transpose(x);
  for (const ScaleRule rule : {ScaleRule::te, ScaleRule::deepseek, ScaleRule::quotient_bf16})
    for (const auto& [rows, columns] :
         {std::pair{0, 0}, {1, 0}, {1, 128}, {1, 200}, {5, 7}, {20, 33}})
      for (const int threads : {1, 3}) {
        INFO(to_string(rule) << " " << rows << "x" << columns << ", " << threads << " threads");
        const Recipe recipe{.rule = rule, .row_block = rows, .k_block = columns};
        given.clear();
        const QuantizedTensor q = quantize(recipe, x, true, threads, {}, backend);
        const QuantizedTensor plain = quantize(recipe, x, true, threads);
        CHECK((q.scales == plain.scales));
        std::vector<float> expected = expected_of(rule, x, plain);
        const std::vector<float> second = expected_of(rule, {turned, 410, 37}, *plain.transposed);
        expected.insert(expected.end(), second.begin(), second.end());
        CHECK((bits_of(given) == bits_of(expected)));
        std::size_t wrong = 0;
        for (const CodeVector* codes :
             std::initializer_list<const CodeVector*>{&q.codes, &q.transposed->codes})
          for (std::size_t i = 0; i < codes->size(); ++i) wrong += (*codes)[i] != i % 241;
        CHECK(wrong == 0);
      }
  for (const bool divide : {false, true}) {
    given.clear();
    CodeVector codes(values.size());
    encode_scaled(format(FormatId::e4m3fn), kNvidiaSatfinite, values, {3.0F, 7.0F, 0}, divide,
                  codes, backend);
    REQUIRE(given.size() == values.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      wrong += given[i] != (divide ? values[i] / 7.0F : values[i] * 3.0F);
      wrong += codes[i] != i % 241;
    }
    CHECK(wrong == 0);
  }
  // A target that is asked for is the library's.
  given.clear();
  CHECK((quantize(Recipe{}, x, false, 1, Target::scalar, backend).codes ==
         quantize(Recipe{}, x, false, 1).codes));
  CHECK(given.empty());
}

TEST_CASE("quantize: what a recipe cannot have is said word for word", "[scaling]") {
  const auto why = [](const Recipe& recipe) {
    return test::message_of([&] { (void)Quantizer(recipe); });
  };
  for (const ScaleSource source : {ScaleSource::current, ScaleSource::delayed, ScaleSource::ms_amp,
                                   ScaleSource::calibration, ScaleSource::momentum}) {
    const bool delayed = source == ScaleSource::delayed;
    const bool ms_amp = source == ScaleSource::ms_amp;
    const std::string name(to_string(source));
    INFO(name);
    Recipe good{.source = source};
    if (ms_amp) good.rule = ScaleRule::ms_amp;
    CHECK(why(good) == "accepted");
    const auto with = [&](const auto& change) {
      Recipe recipe = good;
      change(recipe);
      return why(recipe);
    };
    const auto unused = [&](const char* field) {
      return std::string(field) + ": expected its default, since source " + name +
             " does not use it, got another";
    };
    const std::string history = delayed ? "accepted" : unused("delayed");
    CHECK(with([](Recipe& r) { r.delayed.history = 8; }) == history);
    CHECK(with([](Recipe& r) { r.delayed.margin = 1.0F; }) == history);
    CHECK(with([](Recipe& r) { r.delayed.algorithm = AmaxAlgorithm::most_recent; }) == history);
    CHECK(with([](Recipe& r) { r.delayed.zero_amax = ZeroAmax::roll; }) == history);
    CHECK(with([](Recipe& r) { r.window = 15; }) == (ms_amp ? "accepted" : unused("window")));
    CHECK(with([](Recipe& r) { r.power_of_two = true; }) ==
          (delayed || ms_amp ? unused("power_of_two") : "accepted"));
    CHECK(with([](Recipe& r) { r.amax_floor = 0x1p-149F; }) ==
          (delayed || ms_amp ? unused("amax_floor") : "accepted"));
    CHECK(with([](Recipe& r) { r.rule = ScaleRule::torchao; }) ==
          (delayed  ? "rule: expected te, flax or flax_bf16 for source delayed, got torchao"
           : ms_amp ? "rule: expected ms_amp for source ms_amp, got torchao"
                    : "accepted"));
    for (const auto& [rows, columns] : {std::pair{1, 0}, {0, 1}, {1, 128}}) {
      good.row_block = rows;
      good.k_block = columns;
      CHECK(why(good) ==
            (source == ScaleSource::current
                 ? "accepted"
                 : "block: expected one tile (0x0), since the scale comes from earlier "
                   "tensors, got " +
                       std::to_string(rows) + "x" + std::to_string(columns)));
    }
  }
  CHECK(why({.row_block = -1}) == "block: expected rows and columns >= 0, got -1x0");
  CHECK(why({.format = FormatId::f16}) == "format: expected an 8-bit element format, got f16");
  CHECK(why({.format = FormatId::e8m0fnu}) ==
        "format: expected an 8-bit element format, got e8m0fnu");
  CHECK(why({.policy = {.rounding = RoundingMode::stochastic}}) ==
        "policy: expected a rounding mode without random bits, got stochastic");
}

TEST_CASE("quantizer: a moving average starts anew from a scale of one", "[scaling]") {
  const auto inverse = [](const std::vector<float>& amaxes) {
    Quantizer quantizer(find_preset("quanto").activation);
    for (const float& amax : amaxes) quantizer.observe({{&amax, 1}, 1, 1});
    const float one = 1.0F;
    return quantizer.quantize({{&one, 1}, 1, 1}).inverse_scales[0];
  };
  CHECK(inverse({448.0F}) == 1.0F);
  CHECK(inverse({448.0F, 448.0F * 4.0F}) == 4.0F);
  CHECK(inverse({448.0F, 448.0F, 448.0F * 2.0F}) == 2.0F);
  CHECK(inverse({448.0F * 4.0F, 448.0F}) == 0.9F * 4.0F + 1.0F * static_cast<float>(1.0 - 0.9));
}

TEST_CASE("statistics: an infinity is in no range of a tile", "[scaling]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1.0F,      8.0F,       kInfinity, -kInfinity,  // 3 octaves
                             kInfinity, -kInfinity, 0.0F,      kInfinity,   // none
                             0.5F,      0.5F,       -0.5F,     kInfinity,   // 0 octaves
                             2.0F,      -0.25F,     -0.0F,     -1.0F};      // 3 octaves
  const Recipe recipe{.format = FormatId::e4m3fn, .row_block = 1, .k_block = 4};
  const QuantizationStatistics s = quantization_statistics({x, 4, 4}, quantize(recipe, {x, 4, 4}));
  CHECK(s.tile_range_max == 3.0);
  CHECK(s.tile_range_mean == 2.0);
}
