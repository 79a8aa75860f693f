#include "fp8lab/scaling/tile_scales.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <type_traits>

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

void TileScales::store(std::size_t first, QuantizedTensor& q) const {
  std::copy_n(scale_.begin(), tiles_, q.scales.data() + first);
  std::copy_n(inverse_scale_.begin(), tiles_, q.inverse_scales.data() + first);
  if (!q.e8m0.empty()) std::copy_n(e8m0_.begin(), tiles_, q.e8m0.data() + first);
}

void store_columns(std::span<const TileScales> bands, std::size_t first, QuantizedTensor& q) {
  const auto put = [&](auto TileScales::*from, auto& to) {
    using Value = typename std::remove_reference_t<decltype(to)>::value_type;
    std::vector<const Value*> columns;
    for (const TileScales& band : bands) columns.push_back((band.*from).data());
    Value* row = to.data() + first;
    for (std::size_t t = 0; t < bands[0].tiles_; ++t, row += q.tile_columns())
      for (std::size_t b = 0; b < columns.size(); ++b) row[b] = columns[b][t];
  };
  put(&TileScales::scale_, q.scales);
  put(&TileScales::inverse_scale_, q.inverse_scales);
  if (!q.e8m0.empty()) put(&TileScales::e8m0_, q.e8m0);
}

}  // namespace fp8lab::scaling_detail
