// What multiplies the elements of a block of an encode to nearest, and the way through the factors
// of tiles; included once for each target.

#include <algorithm>
#include <cstddef>

#include "fp8lab/cast/kernels/vector-inl.hpp"

#if defined(FP8LAB_CAST_FACTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_CAST_FACTORS_INL
#undef FP8LAB_CAST_FACTORS_INL
#else
#define FP8LAB_CAST_FACTORS_INL
#endif

#if FP8LAB_HAS_CAST_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {

/// Elements of a block that lie in one tile.
constexpr std::size_t kRun = std::min(kBlock, kTileStep);

class TileCursor {
 public:
  HWY_INLINE TileCursor(const float* factors, std::size_t tiles, std::size_t block,
                        std::size_t count)
      : at_(factors),
        block_(block),
        // A tile that holds all elements has no next one, and need not be a multiple of a run.
        left_(block >= count ? ~std::size_t{0} : block),
        // The last factor stays: part of the last block may lie behind the last element.
        last_(factors + tiles - 1) {}

  /// The factor of the next `kRun` elements.
  HWY_INLINE const float* next_run() {
    const float* run = at_;
    left_ -= kRun;
    if (left_ == 0) {
      left_ = block_;
      at_ += at_ != last_ ? 1 : 0;
    }
    return run;
  }

  /// The factors of the next block, one an element.
  HWY_INLINE const float* next_block() {
    const float* run = at_;
    at_ += kBlock;
    return run;
  }

 private:
  const float* at_;
  std::size_t block_;
  std::size_t left_;
  const float* last_;
};

template <bool kDivide>
HWY_INLINE F32 scaled(F32 value, F32 factor) {
  return kDivide ? hn::Div(value, factor) : hn::Mul(value, factor);
}

/// The factor of a whole call, or none. Elements of vector v of a block are multiplied by
/// `apply(value, v)`, here as below.
template <bool kScaled>
struct CallFactor {
  static constexpr bool kManyScales = false;
  F32 factor;
  HWY_INLINE explicit CallFactor(F32 scale) : factor(scale) {}
  HWY_INLINE F32 apply(F32 value, std::size_t) const {
    return kScaled ? hn::Mul(value, factor) : value;
  }
};

/// Those of the tiles in which the runs of a block lie.
template <bool kDivide>
struct TileFactor {
  static constexpr bool kManyScales = true;
  F32 factors[kBlock / kRun];
  HWY_INLINE explicit TileFactor(TileCursor& cursor) {
    for (F32& factor : factors) factor = hn::Set(Tag<float>(), *cursor.next_run());
  }
  HWY_INLINE F32 apply(F32 value, std::size_t v) const {
    return scaled<kDivide>(value, factors[v * kLanes / kRun]);
  }
};

/// One an element.
template <bool kDivide>
struct ElementFactors {
  static constexpr bool kManyScales = true;
  const float* factors;
  HWY_INLINE explicit ElementFactors(TileCursor& cursor) : factors(cursor.next_block()) {}
  HWY_INLINE F32 apply(F32 value, std::size_t v) const {
    return scaled<kDivide>(value, hn::LoadU(Tag<float>(), factors + kLanes * v));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CAST_KERNELS
#endif  // once for each target
