#pragma once
// Which recipe, and which operations on elements, gave the codes and scales of a tensor.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// A cast whose result is known.
struct ObservedCast {
  FloatMatrix x;                        ///< the original values
  FormatId format = FormatId::e4m3fn;   ///< of the codes
  std::span<const std::uint8_t> codes;  ///< row-major [rows, k], one per byte
  std::span<const float> scales;  ///< of tiles in row-major order, all levels; multiply codes, or
                                  ///< values before the cast: both are tried
};

/// A recipe, and how many codes and scales it gives differently.
struct RecipeMatch {
  std::string_view recipe;
  TensorRole role = TensorRole::weight;
  std::int64_t wrong_codes = 0;
  std::int64_t wrong_scales = 0;
  std::int64_t row_block = 0;  ///< its tile
  std::int64_t k_block = 0;
  bool multiplies = false;  ///< the given scales are those that multiply values before the cast

  [[nodiscard]] bool exact() const { return wrong_codes == 0 && wrong_scales == 0; }
};

/// Operations on elements under the given scales, whatever rule these come from.
struct ElementMatch {
  std::string input;    ///< "binary32", "bf16" or "f16": what values are rounded to first
  std::string scaling;  ///< "x / s", "x * (1 / s)", or "x * s" for multipliers
  std::string_view rounding;
  std::string_view overflow;
  std::string_view subnormals;
  std::int64_t row_block = 0;
  std::int64_t k_block = 0;
  std::int64_t wrong_codes = 0;
};

struct CastSearch {
  std::vector<RecipeMatch> recipes;    ///< the best first; equal ones in the order of `presets`
  std::vector<ElementMatch> elements;  ///< the best first
  std::int64_t codes = 0;
  std::int64_t tiles = 0;

  [[nodiscard]] bool explained() const { return !recipes.empty() && recipes.front().exact(); }
};

/// Tries the recipe of every preset and role whose scale is that of the current tensor and whose
/// tiles have as many scales as are given, and, for these tiles, every combination of input type,
/// scaling, rounding, overflow and subnormals. NaN codes count as equal to NaN codes alone. Systems
/// that compute in BF16 are tried if all values are BF16 numbers.
///
/// Throws `Error` for codes or scales that no tiles of the matrix have.
CastSearch search_cast(const ObservedCast& cast, int threads = 0);

/// The result as text: the best recipes and the best operations, `top` of each.
std::string describe(const CastSearch& search, std::size_t top);

}  // namespace fp8lab
