#pragma once
// The scales of tiles that stand next to each other.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"

namespace fp8lab::scaling_detail {

inline bool divides(const Recipe& recipe) { return recipe.rule == ScaleRule::deepseek; }

ScaleOptions scale_options(const Recipe& recipe);

class TileScales {
 public:
  TileScales(const Recipe& recipe, Target target, std::size_t tiles);

  /// Begins anew: `tiles` tiles without an element. Their amaxes, as bits, are to be raised.
  std::int32_t* clear(std::size_t tiles);

  /// From amaxes to scales. Needs rounding to nearest, with subnormals.
  void make();

  /// The scale of tile t becomes that of tile number first + t of `q`.
  void store(std::size_t first, QuantizedTensor& q) const;

  /// What the elements of each tile are multiplied (or divided) by; padded.
  [[nodiscard]] const float* factors() const {
    return divides_ ? inverse_scale_.data() : scale_.data();
  }

 private:
  friend void store_columns(std::span<const TileScales>, std::size_t, QuantizedTensor&);

  ScaleOptions options_;
  TileScaler scale_of_;
  const TileKernels& kernels_;
  bool divides_;
  std::size_t tiles_ = 0;
  std::vector<std::int32_t> largest_;
  std::vector<float> scale_;
  std::vector<float> inverse_scale_;
  std::vector<std::uint8_t> e8m0_;
};

/// The scale of tile t of bands[b] becomes that of tile number first + b in row t of tiles.
void store_columns(std::span<const TileScales> bands, std::size_t first, QuantizedTensor& q);

}  // namespace fp8lab::scaling_detail
