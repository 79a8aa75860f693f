#pragma once
// The vector loops of quantization: amaxes, scales, products. Every target
// gives the bits of the scalar one. The casts themselves are those of `cast_kernels`.

#include <cstddef>
#include <cstdint>

#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::scaling_detail {

/// Scales of consecutive tiles, field by field.
struct ScaleArrays {
  float* scale = nullptr;
  float* inverse_scale = nullptr;
  std::uint8_t* e8m0 = nullptr;
};

/// Rows of elements, and where they go.
struct CrossRows {
  const float* from = nullptr;
  std::size_t from_stride = 0;
  float* to = nullptr;  ///< may be `from`
  std::size_t to_stride = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;  ///< a multiple of 16
  std::size_t block = 0;    ///< elements of a tile in a row
};

/// Elements that arrays of scales have beyond their size: kernels work on whole vectors.
inline constexpr std::size_t kScalePadding = 64;

/// Magnitudes are compared as bits, in which order NaN stands above Inf; where `ignore_nan`
/// is set, a NaN counts as 0. `count` elements from `x` on begin at a tile; tile t holds
/// elements [t * block, (t + 1) * block), the last one what is left.
struct TileKernels {
  /// largest[t] becomes the larger of itself and |x| in tile t. What stands `ahead`
  /// elements further is fetched, unless that is 0.
  void (*amax)(const float* x, std::size_t count, std::size_t block, bool ignore_nan,
               std::size_t ahead, std::int32_t* largest);
  /// The same with a tile an element.
  void (*element_amax)(const float* x, std::size_t count, bool ignore_nan, std::size_t ahead,
                       std::int32_t* largest);
  /// Copies rows of a multiple of 16 elements and takes the amaxes of both kinds of tiles: those of
  /// row r stand in row_largest[r * tiles], and column_largest[c] becomes the larger of itself
  /// and |x| in its column. NaN is not ignored.
  void (*cross_amax)(const CrossRows& rows, std::int32_t* row_largest,
                     std::int32_t* column_largest);
  /// The scales of tiles as `TileScaler` has them, under the rules of `has_kernel`. All arrays have
  /// padding; `e8m0` is written under MX rules alone.
  void (*scales)(const ScaleOptions& options, const std::int32_t* largest, std::size_t count,
                 const ScaleArrays& to);
  /// to[i] = x[i] * factors[t], binary32 in the thread's rounding mode; a NaN is canonical.
  void (*multiply)(const float* x, std::size_t count, std::size_t block, const float* factors,
                   float* to);
  /// The same with x[i] / factors[t].
  void (*divide)(const float* x, std::size_t count, std::size_t block, const float* factors,
                 float* to);
  /// to[i] = `rounded_to_bf16` of x[i]; `to` may be `x`.
  void (*round_to_bf16)(const float* x, std::size_t count, float* to);
};

const TileKernels& tile_kernels(Target target);

/// Whether the scales of a rule are computed in lanes. Of the others some need binary64.
constexpr bool has_kernel(ScaleRule rule) {
  return (is_mx(rule) && rule < ScaleRule::torchao_mx_rceil) || rule == ScaleRule::te ||
         rule == ScaleRule::deepseek || rule == ScaleRule::deepgemm;
}

}  // namespace fp8lab::scaling_detail
