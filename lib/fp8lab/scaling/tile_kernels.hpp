#pragma once
// The vector loops of quantization: amaxes, MX scales, products. Every target
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

/// Elements that arrays of scales have beyond their size: kernels work on whole vectors.
inline constexpr std::size_t kScalePadding = 64;

/// Magnitudes are compared as bits, in which order NaN stands above Inf; where `ignore_nan`
/// is set, a NaN counts as 0. `count` elements from `x` on begin at a tile; tile t holds
/// elements [t * block, (t + 1) * block), the last one what is left.
struct TileKernels {
  /// largest[t] becomes the larger of itself and |x| in tile t. What stands `ahead`
  /// elements further is fetched.
  void (*amax)(const float* x, std::size_t count, std::size_t block, bool ignore_nan,
               std::size_t ahead, std::int32_t* largest);
  /// The same with a tile an element.
  void (*element_amax)(const float* x, std::size_t count, bool ignore_nan, std::size_t ahead,
                       std::int32_t* largest);
  /// The scales of tiles under an MX rule, as `TileScaler` has them. All arrays have padding.
  void (*mx_scales)(const ScaleOptions& options, const std::int32_t* largest, std::size_t count,
                    const ScaleArrays& to);
  /// to[i] = x[i] * factors[t], binary32 in the thread's rounding mode; a NaN is canonical.
  void (*multiply)(const float* x, std::size_t count, std::size_t block, const float* factors,
                   float* to);
  /// The same with x[i] / factors[t].
  void (*divide)(const float* x, std::size_t count, std::size_t block, const float* factors,
                 float* to);
};

const TileKernels& tile_kernels(Target target);

}  // namespace fp8lab::scaling_detail
