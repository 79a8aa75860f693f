#pragma once
// Scales and casts rows of tiles.

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/cast/kernels/kernels.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {

/// Codes of tensors from here on are written around the caches.
inline constexpr std::size_t kLargeCodes = std::size_t{1} << 20;

using cast_kernels::Ahead;

/// `encode` would do, but has a price a call that is more than a small tile costs, and takes
/// neither a division nor a scale of 0, Inf or NaN.
class TileCaster {
 public:
  /// `stream`: the codes are more than the caches hold. Needs rounding to nearest, with subnormals.
  TileCaster(const Recipe& recipe, Target target, bool stream);

  /// What was written around the caches is there for other threads after that.
  ~TileCaster();
  TileCaster(const TileCaster&) = delete;
  TileCaster& operator=(const TileCaster&) = delete;

  /// `count` elements that begin at a tile, to `codes`. factors[t]: what elements [t * block, (t +
  /// 1) * block) are multiplied (or divided) by. With a block of 1, 63 more than `count` of them
  /// can be read.
  void add(const float* x, std::size_t count, std::size_t block, const float* factors,
           const Ahead& ahead, std::uint8_t* codes);

  /// Whether `add_crossed` has a kernel for the recipe's policy.
  [[nodiscard]] bool takes_crossed() const;

  /// The smallest magnitude, as bits, whose code is not that of a finite number.
  [[nodiscard]] std::uint32_t overflow_from() const { return plan_.nearest_plan.overflow_from; }

  /// What the task says; its plan, division and way of writing are this caster's.
  void add_crossed(cast_kernels::CrossTask task) const;

 private:
  void add_scaled(const float* x, std::size_t count, std::size_t block, const float* factors,
                  std::uint8_t* codes);
  void scale(const float* x, std::size_t count, std::size_t block, const float* factors);

  /// From this tile on a call a tile is cheaper than values that are scaled ahead.
  static constexpr std::size_t kCallBlock = 128;
  static constexpr std::size_t kBuffer = 2048;

  const cast_kernels::KernelTable& casts_;
  ScaleRule rule_;
  const TileKernels& kernels_;
  cast_kernels::EncodePlan plan_;
  bool divide_;
  bool stream_;
  std::array<float, kBuffer> values_;
};

}  // namespace fp8lab::scaling_detail
