// Drawn recipes of every rule, on drawn shapes of drawn numbers: each element, scale and code on
// every target against one cast after the other.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/two_level.hpp"

using namespace fp8lab;

namespace {

/// What a quantized tensor must hold, in its own order.
struct SpelledOut {
  std::vector<std::uint32_t> scales;
  std::vector<std::uint32_t> inverse_scales;
  std::vector<std::uint8_t> scale_codes;
  std::vector<std::uint8_t> codes;
};

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed, "every rule") {}
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random_.below(next_++, static_cast<std::uint64_t>(count)));
  }
  template <typename T>
  T of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(static_cast<std::int64_t>(all.size())))];
  }
  float normal() { return static_cast<float>(random_.normal(next_++)); }
  std::uint32_t bits() { return random_.bits32(next_++); }

 private:
  RandomStream random_;
  std::uint64_t next_ = 0;
};

/// Numbers of one size, of many, or any bits; runs of zeros, of either sign; some that are special.
std::vector<float> drawn_numbers(Draws& draws, std::int64_t count) {
  const std::int64_t kind = draws.below(4);
  std::vector<float> x;
  while (static_cast<std::int64_t>(x.size()) < count) {
    const float size = std::ldexp(1.0F, static_cast<int>(draws.below(kind == 0 ? 1 : 60)) - 30);
    const std::int64_t run = 1 + draws.below(90);
    const bool zeros = draws.below(6) == 0;
    for (std::int64_t i = 0; i < run; ++i) {
      float value = kind == 3 ? std::bit_cast<float>(draws.bits()) : size * draws.normal();
      if (zeros || draws.below(12) == 0) value = std::copysign(0.0F, value);
      if (kind == 2 && draws.below(400) == 0)
        value = draws.of<float>(
            {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
             std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
             std::numeric_limits<float>::max(), 0x1p-149F});
      x.push_back(value);
    }
  }
  x.resize(static_cast<std::size_t>(count));
  return x;
}

/// Calls tile(its elements' places) for each tile in order.
template <typename Tile>
void for_tiles(const QuantizedTensor& q, const Tile& tile) {
  for (std::int64_t r0 = 0; r0 < q.rows; r0 += q.row_block)
    for (std::int64_t c0 = 0; c0 < q.k; c0 += q.k_block) {
      std::vector<std::size_t> places;
      for (std::int64_t r = r0; r < std::min(r0 + q.row_block, q.rows); ++r)
        for (std::int64_t c = c0; c < std::min(c0 + q.k_block, q.k); ++c)
          places.push_back(static_cast<std::size_t>(r * q.k + c));
      tile(places);
    }
}

std::vector<float> values_at(const std::vector<float>& x, const std::vector<std::size_t>& places) {
  std::vector<float> values;
  values.reserve(places.size());
  for (const std::size_t place : places) values.push_back(x[place]);
  return values;
}

SpelledOut one_level(const Recipe& recipe, const std::vector<float>& x, const QuantizedTensor& q) {
  SpelledOut all;
  all.codes.resize(x.size());
  const ScaleOptions options{.rule = recipe.rule,
                             .format = recipe.format,
                             .power_of_two = recipe.power_of_two,
                             .amax_floor = recipe.amax_floor};
  for_tiles(q, [&](const std::vector<std::size_t>& places) {
    const TileScale scale =
        tile_scale(options, amax(values_at(x, places), amax_ignores_nan(recipe.rule)));
    all.scales.push_back(std::bit_cast<std::uint32_t>(scale.scale));
    all.inverse_scales.push_back(std::bit_cast<std::uint32_t>(scale.inverse_scale));
    if (is_mx(recipe.rule)) all.scale_codes.push_back(scale.e8m0);
    for (const std::size_t place : places)
      all.codes[place] = static_cast<std::uint8_t>(encode(
          format(recipe.format), recipe.policy, scaled_element(recipe.rule, x[place], scale)));
  });
  return all;
}

SpelledOut two_levels(const Recipe& recipe, const std::vector<float>& x, const QuantizedTensor& q) {
  using enum ScaleRule;
  SpelledOut all;
  all.codes.resize(x.size());
  const bool ignores =
      recipe.rule == nvfp4 || recipe.rule == te_nvfp4 || recipe.rule == serving_nvfp4;
  const bool divides = recipe.rule == compressed_nvfp4 || recipe.rule == compressed_nvfp4_bf16 ||
                       recipe.rule == modelopt_nvfp4;
  const TensorScale tensor = tensor_scale(recipe.rule, amax(x, ignores));
  for_tiles(q, [&](const std::vector<std::size_t>& places) {
    const TwoLevelScale scale =
        two_level_scale(recipe.rule, tensor, amax(values_at(x, places), ignores));
    all.scales.push_back(
        std::bit_cast<std::uint32_t>(divides ? 1.0F / scale.factor : scale.factor));
    all.inverse_scales.push_back(std::bit_cast<std::uint32_t>(scale.inverse_scale));
    all.scale_codes.push_back(scale.code);
    for (const std::size_t place : places) {
      const float value =
          recipe.rule == compressed_nvfp4_bf16 ? rounded_to_bf16(x[place]) : x[place];
      float scaled = divides ? value / scale.factor + 0.0F : value * scale.factor;
      if (std::isnan(scaled)) scaled = std::numeric_limits<float>::quiet_NaN();
      all.codes[place] =
          static_cast<std::uint8_t>(encode(format(FormatId::e2m1), recipe.policy, scaled));
    }
  });
  return all;
}

/// Where two lists differ first, or nothing. NaN are one.
template <typename T>
std::string first_other(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size()) return fmt::format("{} {}, not {}", got.size(), what, want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    if constexpr (sizeof(T) == 4)
      if (std::isnan(std::bit_cast<float>(got[i])) && std::isnan(std::bit_cast<float>(want[i])))
        continue;
    return fmt::format("{} {}: got {:#x}, expected {:#x}", what, i, got[i], want[i]);
  }
  return {};
}

std::vector<std::uint32_t> words(const std::vector<float>& x) {
  std::vector<std::uint32_t> all;
  for (const float value : x) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

std::string differences(const QuantizedTensor& q, const SpelledOut& want) {
  std::string all = first_other("scale", words(q.scales), want.scales);
  all += first_other("inverse scale", words(q.inverse_scales), want.inverse_scales);
  all += first_other("scale code", q.e8m0.empty() ? q.ue4m3 : q.e8m0, want.scale_codes);
  return all + first_other("code", {q.codes.begin(), q.codes.end()}, want.codes);
}

void check_shape(Draws& draws, const Recipe& recipe, std::int64_t rows, std::int64_t k,
                 bool turned_too = false) {
  const std::vector<float> x = drawn_numbers(draws, rows * k);
  const std::vector<float> turned = transpose({x, rows, k});
  const auto spelled = [&](const std::vector<float>& values, const QuantizedTensor& q) {
    return is_two_level(recipe.rule) ? two_levels(recipe, values, q) : one_level(recipe, values, q);
  };
  INFO(to_string(recipe.rule) << " of " << format(recipe.format).name << ", " << recipe.row_block
                              << "x" << recipe.k_block << " on [" << rows << ", " << k
                              << "], power of two " << recipe.power_of_two << ", floor "
                              << recipe.amax_floor);
  SpelledOut want;
  SpelledOut want_turned;
  for (const Target target : available_targets()) {
    const int threads = draws.below(4) == 0 ? 2 : 1;
    const bool with_transpose = draws.below(2) == 0 || turned_too;
    const QuantizedTensor q = quantize(recipe, {x, rows, k}, with_transpose, threads, target);
    if (want.codes.empty()) want = spelled(x, q);
    INFO(to_string(target) << ", " << threads
                           << " threads, with its transpose: " << with_transpose);
    CHECK(differences(q, want) == "");
    if (!with_transpose) continue;
    REQUIRE(q.transposed);
    if (want_turned.codes.empty()) want_turned = spelled(turned, *q.transposed);
    CHECK(differences(*q.transposed, want_turned) == "");
  }
}

void check_drawn(Draws& draws, const Recipe& recipe) {
  // Long rows, many rows and a few elements: pieces and strips have another order in each.
  const std::int64_t kind = draws.below(4);
  const std::int64_t rows = 1 + draws.below(kind == 0 ? 3 : kind == 1 ? 4 : 40);
  const std::int64_t k = 1 + draws.below(kind == 0 ? 1500 : kind == 1 ? 9 : 80);
  check_shape(draws, recipe, rows, k);
}

}  // namespace

TEST_CASE("quantize: drawn recipes of every rule are each element's cast", "[scaling]") {
  using enum FormatId;
  for (int i = 0; i <= static_cast<int>(ScaleRule::qwix_bf16); ++i) {
    const auto rule = static_cast<ScaleRule>(i);
    Draws draws(static_cast<std::uint64_t>(i));
    for (int run = 0; run < 3; ++run) {
      Recipe recipe{.rule = rule};
      recipe.format = is_mx(rule)
                          ? draws.of<FormatId>({e4m3fn, e5m2, e2m3, e3m2, e2m1})
                          : draws.of<FormatId>({e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e4m3fn});
      if (recipe.format == e4m3fn || recipe.format == e5m2)
        recipe.policy = kCastProfiles[static_cast<std::size_t>(draws.below(9))].policy;
      recipe.row_block = draws.of<std::int64_t>({0, 1, 1, 1, 2, 5, 16, 128});
      recipe.k_block = draws.of<std::int64_t>({0, 1, 3, 8, 16, 32, 33, 64, 128, 600, 1024});
      recipe.power_of_two = has_power_of_two(rule) && draws.below(2) == 0;
      if (has_amax_floor(rule)) recipe.amax_floor = draws.of<float>({0.0F, 1e-4F, 0.75F, 1e-12F});
      check_drawn(draws, recipe);
    }
  }
}

TEST_CASE("quantize: scales without a kernel, of blocks that are cast along both sides",
          "[scaling]") {
  Draws draws(300);
  for (int i = 0; i <= static_cast<int>(ScaleRule::qwix_bf16); ++i) {
    const auto rule = static_cast<ScaleRule>(i);
    if (scaling_detail::has_kernel(rule)) continue;
    for (const std::int64_t block : {16, 32})
      check_shape(draws, {.rule = rule, .row_block = 1, .k_block = block}, 100, 70, true);
  }
}

TEST_CASE("quantize: drawn recipes with two levels of scales are each element's cast",
          "[scaling]") {
  using enum ScaleRule;
  for (const ScaleRule rule : {nvfp4, te_nvfp4, torchao_nvfp4, compressed_nvfp4,
                               compressed_nvfp4_bf16, modelopt_nvfp4, serving_nvfp4}) {
    Draws draws(100 + static_cast<std::uint64_t>(rule));
    for (int run = 0; run < 5; ++run) {
      Recipe recipe{.format = FormatId::e2m1, .rule = rule};
      recipe.row_block = draws.of<std::int64_t>({0, 1, 1, 1, 16, 3});
      recipe.k_block = draws.of<std::int64_t>({16, 16, 16, 1, 5, 33, 200});
      check_drawn(draws, recipe);
    }
  }
}

TEST_CASE("quantize: tiles longer than what is scaled at a time", "[scaling]") {
  using enum ScaleRule;
  // Elements that are changed before their cast, and casts that no fast kernel has.
  Draws draws(200);
  for (const ScaleRule rule :
       {quotient_bf16, quotient_eps, quotient_eps_bf16, compressed_mx, compressed_mx_bf16,
        modelopt_mxfp4, deepgemm_fp4, qwix_bf16, te, deepseek})
    for (const std::int64_t block : {2047, 2048, 2049, 3000}) {
      Recipe recipe{.rule = rule, .row_block = 1, .k_block = block};
      if (rule == te || rule == deepseek) recipe.policy = kSeedToy;
      check_shape(draws, recipe, 1, 2 * block + 1 + draws.below(50));
    }
}
