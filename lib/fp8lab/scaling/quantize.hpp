#pragma once
// Quantized tensors, their inverse, and the recipes that make them.

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

/// A row-major [rows, k] matrix of binary32 values, not owned. k is the
/// dimension that a product sums over.
struct FloatMatrix {
  std::span<const float> values;
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

/// Codes of FP8, FP6 or FP4, one a byte, with the scales that their system keeps.
/// value = code * inverse_scale, times tensor_inverse_scale where there are two levels.
struct QuantizedTensor {
  FormatId format = FormatId::e4m3fn;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_block = 1;  ///< tile shape, never above [rows, k] but at least 1
  std::int64_t k_block = 1;
  CodeVector codes;  ///< row-major [rows, k]
  /// [ceil(rows/row_block), ceil(k/k_block)]: what elements are multiplied by, both levels at once.
  std::vector<float> scales;
  std::vector<float> inverse_scales;  ///< of the same shape
  std::vector<std::uint8_t> e8m0;     ///< of the same shape for MX recipes, else empty
  std::vector<std::uint8_t> ue4m3;    ///< of the same shape for two-level recipes, else empty
  float tensor_inverse_scale = 1.0F;  ///< the second level, 1 where there is none

  /// The transpose [k, rows], where asked for: on Hopper each operand must be
  /// contiguous along the summed dimension. It is quantized from the original
  /// values; for one scale a tensor that equals moving the codes.
  std::shared_ptr<QuantizedTensor> transposed;

  [[nodiscard]] std::int64_t tile_rows() const { return (rows + row_block - 1) / row_block; }
  [[nodiscard]] std::int64_t tile_columns() const { return (k + k_block - 1) / k_block; }
  [[nodiscard]] CodeMatrix matrix() const;
  /// As products take them. MX and two-level scales are those of their instructions.
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
  /// What the system stores beside the codes: 1 byte an E8M0 or UE4M3 scale, 4 an FP32 one.
  [[nodiscard]] std::int64_t scale_bytes() const;
};

/// Row-major binary32 values: decoded code times `total_inverse_scale`, rounded to nearest even.
std::vector<float> dequantize(const QuantizedTensor& tensor);

/// Where the scale of a tensor comes from.
enum class ScaleSource : std::uint8_t {
  current,      ///< the amax of the tile itself
  delayed,      ///< DelayedScaling
  ms_amp,       ///< MsAmpScaling
  calibration,  ///< fixed by the tensors that `Quantizer::observe` was shown: their amax
  momentum,     ///< the same, with quanto's moving average of their inverse scales: 0.9 of the old
};
std::string_view to_string(ScaleSource source);
/// Throws `Error`.
ScaleSource find_scale_source(std::string_view name);

/// How one tensor is quantized. A plain value: change any field.
struct Recipe {
  FormatId format = FormatId::e4m3fn;
  CastPolicy policy = kNvidiaSatfinite;
  ScaleRule rule = ScaleRule::te;
  ScaleSource source = ScaleSource::current;
  std::int64_t row_block = 0;      ///< rows of a tile; 0: all
  std::int64_t k_block = 0;        ///< columns of a tile; 0: all of k
  bool power_of_two = false;       ///< rules with `has_power_of_two`
  float amax_floor = 0.0F;         ///< rules with `has_amax_floor`
  std::int64_t rows_multiple = 1;  ///< the system refuses other sizes
  std::int64_t k_multiple = 1;
  DelayedOptions delayed{};
  std::int64_t window = 16;  ///< source ms_amp
};

/// Applies a recipe to one tensor, step after step.
class Quantizer {
 public:
  /// Throws `Error` for a recipe that cannot work (a past-based scale with more
  /// than one tile, block sizes below 0, stochastic rounding, a format that the
  /// rule does not know), and for a field that is set but not used.
  explicit Quantizer(Recipe recipe);

  /// Shows the tensor to the recipe without casting it: a calibration batch of
  /// a static recipe, an earlier step of a delayed one. Throws `Error` for a
  /// recipe that looks at the current tensor only, and for NaN or Inf in a
  /// calibration batch. `threads` 0: all.
  void observe(const FloatMatrix& x, int threads = 0);

  /// Quantizes `x`, and lets a delayed or windowed recipe take its step. A
  /// matrix without elements gives no codes. `threads` 0: all; `target` unset:
  /// `current_target()`, and codes from `backend` where that has the cast; the result
  /// depends on neither. Throws `Error` for a size
  /// that the recipe refuses, a size that disagrees with the values, a static
  /// recipe without calibration, or a target that is not available.
  QuantizedTensor quantize(const FloatMatrix& x, bool with_transpose = false, int threads = 0,
                           std::optional<Target> target = {}, const Backend& backend = {});

  /// The same into `q`, whose memory is used again where it suffices: new memory
  /// costs as much as reading the tensor.
  void quantize_into(const FloatMatrix& x, QuantizedTensor& q, bool with_transpose = false,
                     int threads = 0, std::optional<Target> target = {},
                     const Backend& backend = {});

  [[nodiscard]] const Recipe& recipe() const { return recipe_; }

  /// All that the recipe remembers, in numbers that `set_past` takes:
  ///   delayed      the scale, then the history as `DelayedScaling::history` gives it
  ///   ms_amp       the scale, the clean updates, the window
  ///   calibration  the amax, -1 before the first batch
  ///   momentum     the average inverse scale, -1 before the first batch
  /// Empty for `current`. The number of values depends on the recipe alone.
  [[nodiscard]] std::vector<float> past() const;

  /// Goes on where `past()` was taken: what follows has the same bits. Throws `Error` for another
  /// number of values.
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

/// One use of a recipe that uses only the current tensor. Throws `Error` for one that needs it.
QuantizedTensor quantize(const Recipe& recipe, const FloatMatrix& x, bool with_transpose = false,
                         int threads = 0, std::optional<Target> target = {},
                         const Backend& backend = {});

/// codes[i] = cast(x[i] * scale), or cast(x[i] / inverse_scale) where `divide`
/// is set; binary32 arithmetic, one rounding each. A NaN product is the
/// canonical positive NaN that GPUs give. On `backend` where that has the cast.
/// Throws `Error` if the sizes differ.
void encode_scaled(const Format& f, const CastPolicy& policy, std::span<const float> x,
                   const TileScale& scale, bool divide, std::span<std::uint8_t> codes,
                   const Backend& backend = {});

/// Row-major [k, rows] copy of [rows, k].
std::vector<float> transpose(const FloatMatrix& x);

}  // namespace fp8lab
