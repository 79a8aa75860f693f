#pragma once
// Quantized tensors, their dequantization, and the recipes that quantize them.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/scaling/delayed.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab {

/// A view of a row-major [rows, k] matrix of binary32 values. k is the
/// dimension over which a product sums.
struct FloatMatrix {
  std::span<const float> values;
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

/// Codes of FP8, FP6 or FP4, one per byte, with their scales. Scale direction: value = code *
/// inverse_scale, with two levels also * tensor_inverse_scale.
struct QuantizedTensor {
  FormatId format = FormatId::e4m3fn;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_block = 1;  ///< tile shape, at most [rows, k] and at least 1
  std::int64_t k_block = 1;
  CodeVector codes;  ///< row-major [rows, k]
  /// [ceil(rows/row_block), ceil(k/k_block)]: factors of elements before the cast, all levels.
  std::vector<float> scales;
  std::vector<float> inverse_scales;  ///< of the same shape
  std::vector<std::uint8_t> e8m0;     ///< codes of the scales for MX recipes, else empty
  std::vector<std::uint8_t> ue4m3;    ///< codes of the scales for two-level recipes, else empty
  float tensor_inverse_scale = 1.0F;  ///< the second level; 1 if there is none

  /// The transpose [k, rows], on request: on Hopper each operand must be contiguous
  /// along the summed dimension. It is quantized from the original values. With one
  /// scale per tensor this gives the same codes, transposed.
  std::shared_ptr<QuantizedTensor> transposed;

  [[nodiscard]] std::int64_t tile_rows() const { return (rows + row_block - 1) / row_block; }
  [[nodiscard]] std::int64_t tile_columns() const { return (k + k_block - 1) / k_block; }
  /// The number of the tile that holds an element.
  [[nodiscard]] std::size_t tile_of(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row / row_block * tile_columns() + column / k_block);
  }
  [[nodiscard]] CodeMatrix matrix() const;
  /// The scales for a product. Block-scaled instructions apply MX and two-level scales.
  [[nodiscard]] InverseScales inverse() const {
    const FormatId coded = !e8m0.empty()    ? FormatId::e8m0fnu
                           : !ue4m3.empty() ? FormatId::e4m3fn
                                            : FormatId::f32;
    return {inverse_scales, row_block, k_block, coded, tensor_inverse_scale};
  }
  /// The scale of a tile, both levels at once, rounded to nearest even.
  [[nodiscard]] float total_inverse_scale(std::size_t tile) const {
    return inverse_scales[tile] * tensor_inverse_scale;
  }
  /// Bytes of the stored scales: 1 for an E8M0 or UE4M3 scale, 4 for an FP32 scale.
  [[nodiscard]] std::int64_t scale_bytes() const;
};

/// Row-major binary32 values: decoded code times `total_inverse_scale`, rounded to nearest even.
std::vector<float> dequantize(const QuantizedTensor& tensor);

/// The source of the scale of a tensor.
enum class ScaleSource : std::uint8_t {
  current,      ///< the amax of the tile itself
  delayed,      ///< DelayedScaling
  ms_amp,       ///< MsAmpScaling
  calibration,  ///< the amax of the tensors given to `Quantizer::observe`; fixed
  momentum,     ///< quanto's moving average of their inverse scales, 0.9 of the old one
};
std::string_view to_string(ScaleSource source);
/// The source called `name`. Throws `Error`.
ScaleSource find_scale_source(std::string_view name);

/// How one tensor is quantized. A plain value whose fields can be changed.
struct Recipe {
  FormatId format = FormatId::e4m3fn;
  CastPolicy policy = kNvidiaSatfinite;
  ScaleRule rule = ScaleRule::te;
  ScaleSource source = ScaleSource::current;
  std::int64_t row_block = 0;      ///< rows of a tile; 0: all
  std::int64_t k_block = 0;        ///< columns of a tile; 0: all of k
  bool power_of_two = false;       ///< for rules with `has_power_of_two`
  float amax_floor = 0.0F;         ///< for rules with `has_amax_floor`
  std::int64_t rows_multiple = 1;  ///< the system refuses sizes that are not a multiple
  std::int64_t k_multiple = 1;
  DelayedOptions delayed{};
  std::int64_t window = 16;  ///< for source ms_amp
};

/// Applies a recipe to one tensor at each step, and keeps the state of its scale.
class Quantizer {
 public:
  /// Throws `Error` for a recipe that is not valid (a scale from earlier tensors with
  /// more than one tile, block sizes below 0, stochastic rounding, a format that the
  /// rule does not support), and for a field that is set but not used.
  explicit Quantizer(Recipe recipe);

  /// Updates the scale from a tensor without casting it: a calibration batch for a
  /// static recipe, an earlier step for a delayed one. Throws `Error` for a recipe
  /// that uses only the current tensor, and for NaN or Inf in a calibration batch.
  /// `threads` 0: all.
  void observe(const FloatMatrix& x, int threads = 0);

  /// Quantizes `x`; a delayed or windowed recipe also updates its scale for the next
  /// step. A matrix without elements gives no codes. `threads` 0: all. `target` unset:
  /// `current_target()`. `backend` computes the codes if it supports the cast. Threads
  /// and target do not change the result. Throws `Error` for a size that the recipe
  /// refuses, a size that disagrees with the values, a static recipe without
  /// calibration, or a target that is not available.
  QuantizedTensor quantize(const FloatMatrix& x, bool with_transpose = false, int threads = 0,
                           std::optional<Target> target = {}, const Backend& backend = {});

  /// The same, written to `q`, whose memory is reused if it is large enough: to allocate
  /// memory takes as long as to read the tensor.
  void quantize_into(const FloatMatrix& x, QuantizedTensor& q, bool with_transpose = false,
                     int threads = 0, std::optional<Target> target = {},
                     const Backend& backend = {});

  [[nodiscard]] const Recipe& recipe() const { return recipe_; }

  /// The state of the recipe, as numbers for `set_past`:
  ///   delayed      the scale, then the history in the order of `DelayedScaling::history`
  ///   ms_amp       the scale, the clean updates, the window
  ///   calibration  the amax, -1 before the first batch
  ///   momentum     the average inverse scale, -1 before the first batch
  /// Empty for `current`. The number of values depends only on the recipe.
  [[nodiscard]] std::vector<float> past() const;

  /// Restores a state that `past()` returned: all later results have the same bits. Throws `Error`
  /// for another number of values.
  void set_past(std::span<const float> past);

 private:
  [[nodiscard]] TileScale calibrated_scale() const;
  void calibrate(float amax);
  void encode_by_past(const FloatMatrix& x, int threads, Target target, QuantizedTensor& q);
  void take_step();

  Recipe recipe_;
  std::optional<DelayedScaling> delayed_;
  std::optional<MsAmpScaling> ms_amp_;
  std::optional<float> calibrated_amax_;
  std::optional<float> average_inverse_;  ///< source momentum
};

/// Quantizes with a recipe that uses only the current tensor. Throws `Error` for other recipes.
QuantizedTensor quantize(const Recipe& recipe, const FloatMatrix& x, bool with_transpose = false,
                         int threads = 0, std::optional<Target> target = {},
                         const Backend& backend = {});

/// codes[i] = cast(x[i] * scale), or cast(x[i] / inverse_scale) if `divide` is
/// set, in binary32 with one rounding. A NaN product is the canonical positive NaN
/// of GPUs. `backend` computes the cast if it supports it. Throws `Error` if the
/// sizes differ.
void encode_scaled(const Format& f, const CastPolicy& policy, std::span<const float> x,
                   const TileScale& scale, bool divide, std::span<std::uint8_t> codes,
                   const Backend& backend = {});

/// The transpose of x as a row-major copy [k, rows].
std::vector<float> transpose(const FloatMatrix& x);

}  // namespace fp8lab
