#pragma once
// Which recipe gives exactly the codes and scales of a weight.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/scaling/presets.hpp"
#include "training/model_files/check_model.hpp"
#include "training/model_files/stored_weight.hpp"

namespace fp8lab {

/// Codes and scales that a cast of a matrix [rows, k] gave, as they are stored.
struct CastResult {
  FormatId format = FormatId::e4m3fn;
  std::int64_t row_block = 1;  ///< tiles that share a scale
  std::int64_t k_block = 1;
  /// Writes codes [first, first + out.size()) of the row-major matrix, one per byte.
  std::function<void(std::int64_t first, std::span<std::uint8_t> out)> codes;
  std::span<const float> scales;              ///< value = code * scale, all levels
  ElementType scale_type = ElementType::f32;  ///< inverse scales were rounded to it
  bool two_level = false;
  bool divides = false;  ///< the upper level is stored as a multiplier
};

/// How many codes and scales of a recipe are others.
struct CastDifference {
  std::int64_t codes = 0;
  std::int64_t scales = 0;
  double scale_error = 0.0;  ///< the largest of the scales, relative to the recipe's
  bool none() const { return codes == 0 && scales == 0; }
};

/// Casts `original` ([rows, k]; F32, F16 or BF16) by `recipe` and compares. `amax`: of a tensor
/// scale that others share. Unset if the recipe has other tiles, another format, scales that
/// depend on earlier steps, or does not take such a matrix.
std::optional<CastDifference> compare_cast(const Preset& preset, const Recipe& recipe,
                                           const TensorView& original, std::optional<float> amax,
                                           const CastResult& result);

/// Whether servers join two weights, which then share a tensor's scale.
bool is_joined(const StoredWeight& weight, const StoredWeight& other);

/// Searches a recipe for each weight of a model.
class RecipeSearch {
 public:
  /// `joined`: originals that may share the tensor's scale. `error`: the weight's place in
  /// `CheckedModel::errors`.
  void add(const StoredWeight& weight, const std::vector<float>& scales, const TensorView& codes,
           const TensorView& original, const std::vector<const TensorView*>& joined,
           std::size_t error);

  /// Names the recipes, and adds findings for weights that one gives almost, or that another one
  /// gives than those of the other weights.
  void finish(CheckedModel& checked) const;

 private:
  struct Found {
    std::size_t error = 0;
    std::string kind;                    ///< weights of one kind should have one recipe
    std::vector<const Preset*> presets;  ///< all that give these codes and scales
    std::vector<std::pair<const Preset*, CastDifference>> others;  ///< all that were tried
    CastDifference nearest;  ///< of the recipe that differs least
    const Preset* nearest_preset = nullptr;
    std::int64_t elements = 0;
  };
  /// Whether a weight is that of a recipe but for the last bit: its scale was rounded otherwise, or
  /// a product by the reciprocal stands for a quotient.
  static bool is_near(const Found& found, const Preset& preset);
  template <class Search>
  static void compare(const Search& search, const Preset& preset,
                      const std::vector<const TensorView*>& joined, Found& found);

  std::vector<Found> found_;
  std::map<std::string, std::vector<const Preset*>> seen_;  ///< recipes that were found, by kind
};

}  // namespace fp8lab
