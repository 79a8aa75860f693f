#pragma once
// The scales of tiles that stand next to each other.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"

namespace fp8lab::scaling_detail {

ScaleOptions scale_options(const Recipe& recipe);

/// Rows and columns of tiles in a quantized tensor.
struct ScaleBlock {
  std::size_t row = 0;
  std::size_t rows = 0;
  std::size_t column = 0;
  std::size_t columns = 0;
  std::size_t stride = 0;  ///< between rows (turned: columns) of a part of what is stored there
};

class TileScales {
 public:
  TileScales(const Recipe& recipe, Target target, std::size_t tiles);

  /// Begins anew: `tiles` tiles without an element. Their amaxes, as bits, are to be raised.
  std::int32_t* clear(std::size_t tiles);
  [[nodiscard]] std::int32_t* amaxes() { return largest_.data(); }

  /// From amaxes to scales. Needs rounding to nearest, with subnormals.
  void make() { make(0, tiles_); }

  /// Those of `count` tiles from `from` on; scales behind them become unknown.
  void make(std::size_t from, std::size_t count);

  /// Whether no element of `count` tiles from `from` on is a NaN, or reaches under its scale the
  /// magnitude with bits `overflow_from`. The amaxes are to be those that do not ignore NaN.
  [[nodiscard]] bool bound(std::size_t from, std::size_t count, std::uint32_t overflow_from) const;

  /// The scales of all tiles become those of tiles `first` and on of `q`.
  void store(std::size_t first, QuantizedTensor& q) const;

  /// Blocks that stand beside each other; in each, tiles lie row after row, `stride` of them (the
  /// last block may have fewer of the columns). They become those of one block of `q`, whose cache
  /// lines are so written once.
  static void store_rows(std::span<const TileScales> blocks, const ScaleBlock& all,
                         QuantizedTensor& q);

  /// Tiles lie column after column of the block.
  void store_turned(const ScaleBlock& block, QuantizedTensor& q) const;

  /// What the elements of each tile are multiplied (or divided) by; padded.
  [[nodiscard]] const float* factors() const {
    return divides_ ? inverse_scale_.data() : scale_.data();
  }

 private:
  template <typename Put>
  void put_all(QuantizedTensor& q, const Put& put) const;

  ScaleOptions options_;
  TileScaler scaler_;
  const TileKernels& kernels_;
  bool divides_;
  std::size_t tiles_ = 0;
  CacheLineVector<std::int32_t> largest_;
  CacheLineVector<float> scale_;
  CacheLineVector<float> inverse_scale_;
  CacheLineVector<std::uint8_t> e8m0_;
  std::vector<TileScale> scalar_;  ///< where the rule has no kernel
};

}  // namespace fp8lab::scaling_detail
