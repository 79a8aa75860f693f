#include "fp8lab/scaling/tile_scales.hpp"

#include <algorithm>
#include <bit>

namespace fp8lab::scaling_detail {

ScaleOptions scale_options(const Recipe& recipe) {
  return {.rule = recipe.rule,
          .format = recipe.format,
          .power_of_two = recipe.power_of_two,
          .amax_floor = recipe.amax_floor};
}

TileScales::TileScales(const Recipe& recipe, Target target, std::size_t tiles)
    : options_(scale_options(recipe)),
      scaler_(options_),
      kernels_(tile_kernels(target)),
      divides_(divides(recipe.rule)),
      largest_(tiles + kScalePadding),
      scale_(tiles + kScalePadding),
      inverse_scale_(tiles + kScalePadding),
      e8m0_(tiles + kScalePadding),
      scalar_(has_kernel(recipe.rule) ? 0 : tiles) {}

std::int32_t* TileScales::clear(std::size_t tiles) {
  tiles_ = tiles;
  std::fill_n(largest_.begin(), tiles, 0);
  return largest_.data();
}

void TileScales::make(std::size_t from, std::size_t count) {
  if (has_kernel(options_.rule))
    return kernels_.scales(
        options_, largest_.data() + from, count,
        {scale_.data() + from, inverse_scale_.data() + from, e8m0_.data() + from});
  // The amaxes are put where their scales will stand.
  for (std::size_t t = from; t < from + count; ++t) scale_[t] = std::bit_cast<float>(largest_[t]);
  const std::span<TileScale> scales = std::span(scalar_).subspan(0, count);
  scaler_({scale_.data() + from, count}, scales);
  for (std::size_t t = 0; t < count; ++t) {
    scale_[from + t] = scales[t].scale;
    inverse_scale_[from + t] = scales[t].inverse_scale;
    e8m0_[from + t] = scales[t].e8m0;
  }
}

bool TileScales::bound(std::size_t from, std::size_t count, std::uint32_t overflow_from) const {
  const float* factor = factors();
  std::uint32_t largest = 0;
  const auto raise = [&](const auto& scaled) {
    // A NaN, or a product with a negative factor, has larger bits than a number.
    for (std::size_t t = from; t < from + count; ++t)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(
                                      scaled(std::bit_cast<float>(largest_[t]), factor[t])));
  };
  if (divides_)
    raise([](float x, float by) { return x / by; });
  else
    raise([](float x, float by) { return x * by; });
  return largest < overflow_from;
}

template <typename Put>
void TileScales::put_all(QuantizedTensor& q, const Put& put) const {
  put(scale_.data(), q.scales.data());
  put(inverse_scale_.data(), q.inverse_scales.data());
  if (!q.e8m0.empty()) put(e8m0_.data(), q.e8m0.data());
}

void TileScales::store(std::size_t first, QuantizedTensor& q) const {
  put_all(q, [&](const auto* from, auto* to) { std::copy_n(from, tiles_, to + first); });
}

void TileScales::store_rows(std::span<const TileScales> blocks, const ScaleBlock& all,
                            QuantizedTensor& q) {
  const auto across = static_cast<std::size_t>(q.tile_columns());
  const std::size_t begin = all.row * across + all.column;
  for (std::size_t r = 0; r < all.rows; ++r)
    for (std::size_t b = 0, c = 0; c < all.columns; ++b, c += all.stride) {
      const std::size_t count = std::min(all.stride, all.columns - c);
      blocks[b].put_all(q, [&](const auto* from, auto* to) {
        from += r * all.stride;
        to += begin + r * across + c;
        for (std::size_t t = 0; t < count; ++t) to[t] = from[t];
      });
    }
}

void TileScales::store_turned(const ScaleBlock& block, QuantizedTensor& q) const {
  constexpr std::size_t kRows = 16;  // rows of q may be such that a cache keeps few more of them
  const auto across = static_cast<std::size_t>(q.tile_columns());
  const std::size_t begin = block.row * across + block.column;
  put_all(q, [&, all = block.rows, columns = block.columns, stride = block.stride](const auto* from,
                                                                                   auto* to) {
    to += begin;
    for (std::size_t first = 0; first < all; first += kRows)
      for (std::size_t c = 0; c < columns; ++c)
        for (std::size_t r = first; r < std::min(first + kRows, all); ++r)
          to[r * across + c] = from[c * stride + r];
  });
}

}  // namespace fp8lab::scaling_detail
