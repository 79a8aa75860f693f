#pragma once
// The vector loops of quantization, for rows that are cut into tiles. Every
// target gives the bits of the scalar one. The casts themselves are those of
// `cast_kernels`.

#include <cstddef>
#include <cstdint>

#include "fp8lab/core/target.hpp"

namespace fp8lab::scaling_detail {

/// `count` elements from `x` on begin at a tile; tile t holds elements
/// [t * block, (t + 1) * block), the last one what is left.
struct TileKernels {
  /// largest[t] becomes the larger of itself and the bits of |x| in tile t.
  /// Magnitudes order like their bits, with NaN above Inf; where `ignore_nan`
  /// is set, a NaN counts as 0. What stands `ahead` elements further is fetched.
  void (*amax)(const float* x, std::size_t count, std::size_t block, bool ignore_nan,
               std::size_t ahead, std::int32_t* largest);
  /// to[i] = x[i] * factors[t], binary32 in the thread's rounding mode; a NaN is canonical.
  void (*multiply)(const float* x, std::size_t count, std::size_t block, const float* factors,
                   float* to);
  /// The same with x[i] / factors[t].
  void (*divide)(const float* x, std::size_t count, std::size_t block, const float* factors,
                 float* to);
  /// A copy that writes around the caches.
  void (*stream)(const std::uint8_t* from, std::size_t count, std::uint8_t* to);
};

const TileKernels& tile_kernels(Target target);

}  // namespace fp8lab::scaling_detail
