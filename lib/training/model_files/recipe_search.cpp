#include "training/model_files/recipe_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/two_level.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "training/model_files/expert_cast.hpp"
#include "training/model_files/recipe_input.hpp"
#include "training/model_files/siblings.hpp"

namespace fp8lab {
namespace {

/// Rows that tell most recipes apart. Whole blocks of the usual sizes.
constexpr std::int64_t kFirstRows = 128;

/// The tile of a recipe, cut to a matrix.
std::array<std::int64_t, 2> tile_of(const Recipe& recipe, std::int64_t rows, std::int64_t k) {
  const std::int64_t row_block = recipe.row_block == 0 ? rows : recipe.row_block;
  const std::int64_t k_block = recipe.k_block == 0 ? k : recipe.k_block;
  return {std::min(row_block, rows), std::min(k_block, k)};
}

bool has_form(const Recipe& recipe, const TensorView& original, const CastResult& result) {
  const std::int64_t rows = original.shape[0];
  const std::int64_t k = original.shape[1];
  const std::array<std::int64_t, 2> tile{std::min(result.row_block, rows),
                                         std::min(result.k_block, k)};
  return recipe.source == ScaleSource::current && recipe.format == result.format &&
         is_two_level(recipe.rule) == result.two_level && tile_of(recipe, rows, k) == tile;
}

/// The recipe's scales as a reader of the file would get them.
std::vector<float> stored_scales(const QuantizedWeight& weight, const CastResult& result) {
  const FloatEnvironment environment;
  if (result.two_level) {
    const std::span<const float> table = decode_table(FormatId::e4m3fn);
    std::vector<float> scales;
    for (const std::uint8_t code : weight.scale_codes)
      scales.push_back(result.divides ? table[code] / weight.tensor.scale
                                      : table[code] * weight.tensor.inverse_scale);
    return scales;
  }
  const bool narrow =
      result.scale_type == ElementType::bf16 || result.scale_type == ElementType::f16;
  if (!narrow) return weight.inverse_scales;
  std::vector<std::uint16_t> codes(weight.inverse_scales.size());
  encode(weight.inverse_scales, std::span(codes),
         {.format = *format_of(result.scale_type), .policy = kMlDtypes});
  return to_float(
      view_of(result.scale_type, {std::ssize(codes)}, std::span<const std::uint16_t>(codes)));
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TensorView first_rows(const TensorView& original, std::int64_t rows) {
  const auto bytes =
      static_cast<std::size_t>(rows * original.shape[1]) * element_bytes(original.type);
  return {original.type, {rows, original.shape[1]}, original.bytes.first(bytes)};
}

CastDifference differences(const Recipe& recipe, const TensorView& original,
                           std::optional<float> amax, const CastResult& result) {
  std::atomic<std::int64_t> wrong = 0;
  const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
    std::vector<std::uint8_t> stored(codes.size());
    result.codes(first, stored);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) count += codes[i] == stored[i] ? 0 : 1;
    wrong += count;
  };
  const QuantizedWeight quantized = quantize_weight(
      recipe, original, take, [](auto) {}, amax);
  CastDifference difference{.codes = wrong};
  const std::vector<float> scales = stored_scales(quantized, result);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (i < result.scales.size() && same_bits(scales[i], result.scales[i])) continue;
    ++difference.scales;
    const double error =
        i < result.scales.size() ? std::abs(result.scales[i] / double{scales[i]} - 1.0) : 1.0;
    difference.scale_error = std::max(difference.scale_error, std::isfinite(error) ? error : 1.0);
  }
  return difference;
}

/// A matrix of an original's expert in the order of codes; `memory` holds it where it is turned.
TensorView expert_of(const StoredWeight& weight, const TensorView& original, std::int64_t expert,
                     std::vector<std::byte>& memory) {
  const auto bytes =
      static_cast<std::size_t>(weight.rows * weight.k) * element_bytes(original.type);
  std::span<const std::byte> part =
      original.bytes.subspan(static_cast<std::size_t>(expert) * bytes, bytes);
  if (weight.turns_output) {
    memory = transposed(part, weight.k, weight.rows, original.type);
    part = memory;
  }
  return {original.type, {weight.rows, weight.k}, part};
}

/// Stored codes of an expert, one per byte.
void read_codes(const StoredWeight& weight, std::span<const std::byte> expert, std::int64_t first,
                std::span<std::uint8_t> out) {
  if (!is_packed_storage(weight.codes.type)) {
    const auto part = expert.subspan(static_cast<std::size_t>(first), out.size());
    std::transform(part.begin(), part.end(), out.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return;
  }
  const ElementType type = packed(element_type_of(weight.form.format));
  const std::size_t bits = element_bits(type);
  const auto part =
      expert.subspan(static_cast<std::size_t>(first) * bits / 8, out.size() * bits / 8);
  const std::vector<std::byte> codes = unpack_codes({type, {std::ssize(out)}, part});
  std::transform(codes.begin(), codes.end(), out.begin(),
                 [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
}

/// The amax that a tensor scale comes from, where it is not the matrix's own.
std::optional<float> shared_amax(const Recipe& recipe, const StoredWeight& weight,
                                 const TensorView& original,
                                 const std::vector<const TensorView*>& joined) {
  const TensorSpec& scale = weight.tensor_scale ? weight.tensor_scale->spec : weight.scale.spec;
  const bool of_all = weight.batch > 1 && element_count(scale.shape, scale.name) == 1;
  if (!of_all && joined.empty()) return std::nullopt;
  const auto matrix = [](const TensorView& view) {
    const std::int64_t k = view.shape.back();
    return TensorView{view.type, {view.size() / std::max<std::int64_t>(1, k), k}, view.bytes};
  };
  float largest = of_all || weight.batch == 1 ? weight_amax(recipe, matrix(original)) : 0.0F;
  for (const TensorView* view : joined)
    if (view->type == original.type)
      largest = std::max(largest, weight_amax(recipe, matrix(*view)));
  return largest;
}

/// All experts of a weight under one recipe; unset where it does not fit.
class WeightSearch {
 public:
  WeightSearch(const StoredWeight& weight, const std::vector<float>& scales,
               const TensorView& codes, const TensorView& original)
      : weight_(weight), scales_(scales), codes_(codes), original_(original) {}

  std::optional<CastDifference> compare(const Preset& preset,
                                        const std::vector<const TensorView*>& joined) const {
    const bool has_tensor_scale = preset.weight.row_block == 0 || is_two_level(preset.weight.rule);
    std::optional<float> amax;
    if (has_tensor_scale && takes(preset))
      amax = shared_amax(preset.weight, weight_, original_, joined);
    CastDifference all;
    for (std::int64_t e = 0; e < weight_.batch; ++e) {
      const auto one = compare_expert(preset, e, amax);
      if (!one) return std::nullopt;
      all.codes += one->codes;
      all.scales += one->scales;
      all.scale_error = std::max(all.scale_error, one->scale_error);
      if (!all.none() && e + 1 < weight_.batch && weight_.batch > 8) break;
    }
    return all;
  }

 private:
  [[nodiscard]] bool takes(const Preset& preset) const {
    const TensorView matrix{original_.type, {weight_.rows, weight_.k}, {}};
    return has_form(preset.weight, matrix, result_of(0, {}));
  }

  [[nodiscard]] CastResult result_of(std::int64_t expert, std::span<const std::byte> bytes) const {
    CastResult result;
    result.format = weight_.form.format;
    result.row_block = weight_.row_block;
    result.k_block = weight_.k_block;
    const auto tiles = static_cast<std::size_t>(weight_.tile_rows() * weight_.tile_columns());
    result.scales = std::span(scales_).subspan(static_cast<std::size_t>(expert) * tiles, tiles);
    result.scale_type = weight_.scale.spec.type;
    result.two_level = weight_.form.scales == ScaleKind::two_level;
    result.divides = weight_.names->divides;
    result.codes = [this, bytes](std::int64_t first, std::span<std::uint8_t> out) {
      read_codes(weight_, bytes, first, out);
    };
    return result;
  }

  std::optional<CastDifference> compare_expert(const Preset& preset, std::int64_t expert,
                                               std::optional<float> amax) const {
    std::vector<std::byte> memory;
    std::vector<std::byte> turned;
    const TensorView original = expert_of(weight_, original_, expert, memory);
    const std::size_t size = codes_.bytes.size() / static_cast<std::size_t>(weight_.batch);
    std::span<const std::byte> codes =
        codes_.bytes.subspan(static_cast<std::size_t>(expert) * size, size);
    if (weight_.is_turned) {
      turned = transposed(codes, std::ssize(codes) / weight_.rows, weight_.rows, ElementType::u8);
      codes = turned;
    }
    return compare_cast(preset, preset.weight, original, amax, result_of(expert, codes));
  }

  const StoredWeight& weight_;
  const std::vector<float>& scales_;
  const TensorView& codes_;
  const TensorView& original_;
};

}  // namespace

std::optional<CastDifference> compare_cast(const Preset& preset, const Recipe& recipe,
                                           const TensorView& original, std::optional<float> amax,
                                           const CastResult& result) {
  if (!has_form(recipe, original, result)) return std::nullopt;
  try {
    require_recipe_takes(preset.name, recipe, {"original", original.type, original.shape});
    const std::int64_t rows = original.shape[0];
    const bool by_tensor = recipe.row_block == 0 || is_two_level(recipe.rule);
    if (by_tensor && !amax) amax = weight_amax(recipe, original);
    if (rows > kFirstRows && recipe.rows_multiple <= kFirstRows) {
      const CastDifference first =
          differences(recipe, first_rows(original, kFirstRows), amax, result);
      if (first.codes * 4 > kFirstRows * original.shape[1] || first.scales > 0) return first;
    }
    return differences(recipe, original, amax, result);
  } catch (const Error&) {
    return std::nullopt;  // the recipe does not take such a matrix
  }
}

bool is_joined(const StoredWeight& weight, const StoredWeight& other) {
  const std::string whole = joined_module(weight.module);
  return &weight != &other && weight.form.scales == ScaleKind::two_level && !whole.empty() &&
         joined_module(other.module) == whole;
}

/// Tries one recipe on a weight.
template <class Search>
void RecipeSearch::compare(const Search& search, const Preset& preset,
                           const std::vector<const TensorView*>& joined, Found& found) {
  // Weights that a server joins may share the amax of all, or have their own.
  std::optional<CastDifference> difference = search.compare(preset, joined);
  if (difference && !difference->none() && !joined.empty()) {
    const auto alone = search.compare(preset, {});
    if (alone && alone->codes < difference->codes) difference = alone;
  }
  if (!difference) return;
  if (difference->none()) found.presets.push_back(&preset);
  found.others.emplace_back(&preset, *difference);
  if (found.nearest_preset != nullptr && difference->codes >= found.nearest.codes) return;
  found.nearest = *difference;
  found.nearest_preset = &preset;
}

void RecipeSearch::add(const StoredWeight& weight, const std::vector<float>& scales,
                       const TensorView& codes, const TensorView& original,
                       const std::vector<const TensorView*>& joined, std::size_t error) {
  Found found;
  found.error = error;
  found.elements = original.size();
  const bool by_tensor = weight.row_block >= weight.rows && weight.k_block >= weight.k;
  found.kind = fmt::format("{} {} {} x {}", describe(weight.form), to_string(original.type),
                           by_tensor ? 0 : weight.row_block,
                           weight.k_block >= weight.k ? 0 : weight.k_block);
  const WeightSearch search(weight, scales, codes, original);
  // A recipe that explains all weights explains an earlier one: the others are tried if none does.
  std::vector<const Preset*>& seen = seen_[found.kind];
  for (const Preset* preset : seen) compare(search, *preset, joined, found);
  if (found.presets.empty())
    for (const Preset& preset : presets())
      if (std::find(seen.begin(), seen.end(), &preset) == seen.end())
        compare(search, preset, joined, found);
  for (const Preset* preset : found.presets)
    if (std::find(seen.begin(), seen.end(), preset) == seen.end()) seen.push_back(preset);
  found_.push_back(std::move(found));
}

bool RecipeSearch::is_near(const Found& found, const Preset& preset) {
  // Two units in the last place of binary32, and the codes that such a scale moves.
  constexpr double kLastPlaces = 2.4e-7;
  constexpr std::int64_t kFewCodes = 50;  // one of this many
  return std::any_of(found.others.begin(), found.others.end(), [&](const auto& tried) {
    const CastDifference& difference = tried.second;
    const bool explains = difference.scales > 0 || !found.presets.empty();
    return tried.first == &preset && explains && difference.scale_error <= kLastPlaces &&
           difference.codes * kFewCodes <= found.elements;
  });
}

void RecipeSearch::finish(CheckedModel& checked) const {
  std::map<std::string, std::map<const Preset*, std::int64_t>> counts;
  std::map<std::string, std::int64_t> weights;
  for (const Found& one : found_) {
    ++weights[one.kind];
    for (const Preset* preset : one.presets) ++counts[one.kind][preset];
  }
  for (const Found& one : found_) {
    WeightError& error = checked.errors.at(one.error);
    const auto kind = counts.find(one.kind);
    if (kind == counts.end()) continue;
    // Presets lie in one array: the first of those that explain most weights.
    const auto most =
        std::max_element(kind->second.begin(), kind->second.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const Preset* common = most->first;
    const bool is_common =
        std::find(one.presets.begin(), one.presets.end(), common) != one.presets.end();
    if (!one.presets.empty()) error.recipe = is_common ? common->name : one.presets.front()->name;
    if (is_common || 2 * most->second <= weights[one.kind] || is_near(one, *common)) continue;
    const std::string got = !one.presets.empty()
                                ? fmt::format("those of {}", error.recipe)
                                : fmt::format("{} other codes of {} and {} other scales",
                                              one.nearest.codes, one.elements, one.nearest.scales);
    checked.findings.push_back(
        {"recipe", error.name,
         fmt::format("expected the codes and scales of recipe {}, as for {} other weights, got {}",
                     common->name, most->second, got)});
  }
}

}  // namespace fp8lab
