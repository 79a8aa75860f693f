#include "fp8lab/scaling/cast_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

struct Tile {
  std::int64_t rows;
  std::int64_t columns;
  friend auto operator<=>(const Tile&, const Tile&) = default;  // NOLINT(modernize-use-nullptr)
};

Tile tile_of_recipe(const Recipe& recipe, const FloatMatrix& x) {
  return {recipe.row_block == 0 ? x.rows : std::min(recipe.row_block, x.rows),
          recipe.k_block == 0 ? x.k : std::min(recipe.k_block, x.k)};
}

std::int64_t count_of_tiles(const Tile& tile, const FloatMatrix& x) {
  return ceil_divide(x.rows, tile.rows) * ceil_divide(x.k, tile.columns);
}

bool same_float(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::int64_t count_wrong(std::span<const std::uint8_t> got, std::span<const std::uint8_t> want) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] == want[i] ? 0 : 1;
  return wrong;
}

std::int64_t count_wrong(std::span<const float> got, std::span<const float> want) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += same_float(got[i], want[i]) ? 0 : 1;
  return wrong;
}

/// Scales that files give as BF16 numbers are those of the recipe, rounded.
std::vector<float> to_bf16(std::span<const float> values) {
  std::vector<float> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), rounded_to_bf16);
  return rounded;
}

/// Both levels of two.
std::vector<float> whole_scales(const QuantizedTensor& q) {
  const FloatEnvironment environment;
  std::vector<float> scales = q.inverse_scales;
  if (!q.ue4m3.empty()) {
    const std::span<const float> table = decode_table(FormatId::e4m3fn);
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = table[q.ue4m3[i]] * q.tensor_inverse_scale;
  }
  return scales;
}

void compare_scales(const QuantizedTensor& q, std::span<const float> given, RecipeMatch& match) {
  const std::vector<float> inverse = whole_scales(q);
  match.wrong_scales = std::min(count_wrong(given, inverse), count_wrong(given, to_bf16(inverse)));
  const std::int64_t as_multipliers = count_wrong(given, q.scales);
  match.multiplies = as_multipliers < match.wrong_scales;
  if (match.multiplies) match.wrong_scales = as_multipliers;
}

bool are_bf16(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float x) { return std::isnan(x) || rounded_to_bf16(x) == x; });
}

void search_recipes(const ObservedCast& cast, int threads, CastSearch& search) {
  const bool bf16 = are_bf16(cast.x.values);
  for (const Preset& preset : presets()) {
    std::vector<const Recipe*> seen;
    for (const TensorRole role :
         {TensorRole::weight, TensorRole::activation, TensorRole::gradient}) {
      const Recipe& recipe = preset.recipe(role);
      const Tile tile = tile_of_recipe(recipe, cast.x);
      const bool fits = recipe.format == cast.format && recipe.source == ScaleSource::current &&
                        (bf16 || !takes_bf16(recipe.rule)) &&
                        count_of_tiles(tile, cast.x) == std::ssize(cast.scales);
      const bool again = std::any_of(seen.begin(), seen.end(), [&](const Recipe* other) {
        return other->rule == recipe.rule && other->row_block == recipe.row_block &&
               other->k_block == recipe.k_block && other->power_of_two == recipe.power_of_two &&
               other->format == recipe.format && other->policy == recipe.policy &&
               other->amax_floor == recipe.amax_floor;
      });
      if (!fits || again) continue;
      seen.push_back(&recipe);
      try {
        const QuantizedTensor q = Quantizer(recipe).quantize(cast.x, false, threads);
        RecipeMatch match{preset.name, role, 0, 0, tile.rows, tile.columns, false};
        match.wrong_codes = count_wrong(q.codes, cast.codes);
        compare_scales(q, cast.scales, match);
        search.recipes.push_back(match);
      } catch (const Error&) {
        continue;  // the recipe does not take a matrix of these sizes
      }
    }
  }
  std::stable_sort(search.recipes.begin(), search.recipes.end(),
                   [](const RecipeMatch& a, const RecipeMatch& b) {
                     return std::pair(a.wrong_scales + a.wrong_codes, a.wrong_codes) <
                            std::pair(b.wrong_scales + b.wrong_codes, b.wrong_codes);
                   });
}

enum class Scaling : std::uint8_t { quotient, reciprocal, product };
constexpr std::array<std::string_view, 3> kScalings{"x / s", "x * (1 / s)", "x * s"};
constexpr std::array<std::string_view, 3> kInputs{"binary32", "bf16", "f16"};

float rounded_input(float x, std::size_t input) {
  if (input == 1) return rounded_to_bf16(x);
  if (input == 0) return x;
  std::uint16_t code = 0;
  encode(std::span<const float>(&x, 1), std::span(&code, 1),
         {.format = FormatId::f16, .policy = kMlDtypes});
  return decode_table(FormatId::f16)[code];
}

/// Values before the cast.
std::vector<float> scaled(const ObservedCast& cast, const Tile& tile, Scaling scaling,
                          std::size_t input) {
  const FloatEnvironment environment;
  const std::int64_t columns = ceil_divide(cast.x.k, tile.columns);
  std::vector<float> values(cast.x.values.size());
  for (std::int64_t r = 0; r < cast.x.rows; ++r)
    for (std::int64_t c = 0; c < cast.x.k; ++c) {
      const auto at = static_cast<std::size_t>(r * cast.x.k + c);
      const float s =
          cast.scales[static_cast<std::size_t>(r / tile.rows * columns + c / tile.columns)];
      const float x = rounded_input(cast.x.values[at], input);
      values[at] = scaling == Scaling::quotient     ? x / s
                   : scaling == Scaling::reciprocal ? x * (1.0F / s)
                                                    : x * s;
    }
  return values;
}

constexpr std::array<std::pair<RoundingMode, std::string_view>, 6> kRoundings{
    {{RoundingMode::nearest_even, "nearest even"},
     {RoundingMode::nearest_away, "nearest, ties away from zero"},
     {RoundingMode::nearest_toward_zero, "nearest, ties toward zero"},
     {RoundingMode::toward_zero, "toward zero"},
     {RoundingMode::upward, "upward"},
     {RoundingMode::downward, "downward"}}};

void search_policies(const ObservedCast& cast, const Tile& tile, std::span<const float> values,
                     ElementMatch match, CastSearch& search) {
  std::vector<std::uint8_t> codes(values.size());
  for (const auto& [rounding, name] : kRoundings)
    for (const OverflowPolicy overflow : {OverflowPolicy::saturate, OverflowPolicy::non_saturating})
      for (const SubnormalPolicy subnormals :
           {SubnormalPolicy::preserve, SubnormalPolicy::flush_to_zero}) {
        const CastPolicy policy{.rounding = rounding,
                                .overflow = overflow,
                                .subnormals = subnormals,
                                .infinity = overflow == OverflowPolicy::saturate
                                                ? InfinityPolicy::saturate
                                                : InfinityPolicy::non_saturating};
        encode(values, codes, {.format = cast.format, .policy = policy});
        match.rounding = name;
        match.overflow = to_string(overflow);
        match.subnormals = to_string(subnormals);
        match.row_block = tile.rows;
        match.k_block = tile.columns;
        match.wrong_codes = count_wrong(codes, cast.codes);
        search.elements.push_back(match);
      }
}

void search_elements(const ObservedCast& cast, CastSearch& search) {
  std::set<Tile> tiles;
  for (const RecipeMatch& match : search.recipes) tiles.insert({match.row_block, match.k_block});
  for (const Tile& tile : tiles)
    for (std::size_t input = 0; input < kInputs.size(); ++input)
      for (const Scaling scaling : {Scaling::quotient, Scaling::reciprocal, Scaling::product}) {
        const std::vector<float> values = scaled(cast, tile, scaling, input);
        ElementMatch match;
        match.input = kInputs[input];
        match.scaling = kScalings[static_cast<std::size_t>(scaling)];
        search_policies(cast, tile, values, match, search);
      }
  std::stable_sort(
      search.elements.begin(), search.elements.end(),
      [](const ElementMatch& a, const ElementMatch& b) { return a.wrong_codes < b.wrong_codes; });
}

}  // namespace

CastSearch search_cast(const ObservedCast& cast, int threads) {
  require(cast.x.rows > 0 && cast.x.k > 0, "x", "a matrix with elements",
          fmt::format("[{}, {}]", cast.x.rows, cast.x.k));
  require(std::ssize(cast.codes) == cast.x.rows * cast.x.k, "codes",
          fmt::format("as many as values, {}", cast.x.rows * cast.x.k), std::ssize(cast.codes));
  CastSearch search;
  search.codes = std::ssize(cast.codes);
  search.tiles = std::ssize(cast.scales);
  search_recipes(cast, threads, search);
  require(!search.recipes.empty(), "scales",
          fmt::format("as many as a recipe has for [{}, {}] in {}", cast.x.rows, cast.x.k,
                      format(cast.format).name),
          std::ssize(cast.scales));
  search_elements(cast, search);
  return search;
}

std::string describe(const CastSearch& search, std::size_t top) {
  std::string text = search.explained() ? "These recipes give exactly the codes and scales:\n"
                                        : "No recipe gives the codes and scales. The nearest:\n";
  std::size_t shown = 0;
  for (const RecipeMatch& match : search.recipes) {
    if (search.explained() ? !match.exact() : shown == top) break;
    text += fmt::format("  {} ({}), tiles of {} x {}", match.recipe, to_string(match.role),
                        match.row_block, match.k_block);
    if (!match.exact())
      text += fmt::format(": {} of {} codes and {} of {} scales differ", match.wrong_codes,
                          search.codes, match.wrong_scales, search.tiles);
    text += match.multiplies ? "; the scales multiply values before the cast\n" : "\n";
    ++shown;
  }
  text += "Operations on elements under these scales:\n";
  for (std::size_t i = 0; i < std::min(top, search.elements.size()); ++i) {
    const ElementMatch& match = search.elements[i];
    text += fmt::format(
        "  {} input, {}, rounded {}, overflow {}, subnormals {}, tiles of {} x {}: "
        "{} differ\n",
        match.input, match.scaling, match.rounding, match.overflow, match.subnormals,
        match.row_block, match.k_block, counted(match.wrong_codes, "code"));
  }
  return text;
}

}  // namespace fp8lab
