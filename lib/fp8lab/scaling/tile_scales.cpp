#include "fp8lab/scaling/tile_scales.hpp"

#include <algorithm>
#include <bit>
#include <span>

namespace fp8lab::scaling_detail {

ScaleOptions scale_options(const Recipe& recipe) {
  return {.rule = recipe.rule,
          .format = recipe.format,
          .power_of_two = recipe.power_of_two,
          .amax_floor = recipe.amax_floor};
}

TileScales::TileScales(const Recipe& recipe, Target target, std::size_t tiles)
    : options_(scale_options(recipe)),
      scale_of_(options_),
      kernels_(tile_kernels(target)),
      divides_(divides(recipe)),
      largest_(tiles + kScalePadding),
      scale_(tiles + kScalePadding),
      inverse_scale_(tiles + kScalePadding),
      e8m0_(tiles + kScalePadding) {}

std::int32_t* TileScales::clear(std::size_t tiles) {
  tiles_ = tiles;
  std::fill_n(largest_.begin(), tiles, 0);
  return largest_.data();
}

void TileScales::make() {
  if (is_mx(options_.rule))
    return kernels_.mx_scales(options_, largest_.data(), tiles_,
                              {scale_.data(), inverse_scale_.data(), e8m0_.data()});
  for (std::size_t t = 0; t < tiles_; ++t) {
    const float amax = std::bit_cast<float>(largest_[t]);
    TileScale scale;
    scale_of_(std::span(&amax, 1), std::span(&scale, 1));
    scale_[t] = scale.scale;
    inverse_scale_[t] = scale.inverse_scale;
  }
}

void TileScales::store(std::size_t first, std::size_t step, QuantizedTensor& q) const {
  const auto put = [&](const auto& from, auto& to) {
    if (step == 1) {
      std::copy_n(from.begin(), tiles_, to.data() + first);
      return;
    }
    for (std::size_t t = 0; t < tiles_; ++t) to[first + t * step] = from[t];
  };
  put(scale_, q.scales);
  put(inverse_scale_, q.inverse_scales);
  if (!q.e8m0.empty()) put(e8m0_, q.e8m0);
}

}  // namespace fp8lab::scaling_detail
