#include "fp8lab/scaling/quantize.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kChunk = 1 << 16;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int thread_count(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

void validate(const Recipe& recipe, const FloatMatrix& x) {
  require(x.rows >= 0 && x.k >= 0, "x", "rows >= 0 and k >= 0",
          fmt::format("[{}, {}]", x.rows, x.k));
  require(static_cast<std::int64_t>(x.values.size()) == x.rows * x.k, "x",
          fmt::format("[{}, {}] = {} values", x.rows, x.k, x.rows * x.k),
          fmt::format("{}", x.values.size()));
  require(x.rows % recipe.rows_multiple == 0, "x",
          fmt::format("rows divisible by {}", recipe.rows_multiple), fmt::format("{}", x.rows));
  require(x.k % recipe.k_multiple == 0, "x", fmt::format("k divisible by {}", recipe.k_multiple),
          fmt::format("{}", x.k));
}

/// Codes and scales of the right sizes, empty.
QuantizedTensor allocate(const Recipe& recipe, const FloatMatrix& x) {
  QuantizedTensor q;
  q.format = recipe.format;
  q.rows = x.rows;
  q.k = x.k;
  const auto tile = [](std::int64_t block, std::int64_t size) {
    return std::max<std::int64_t>(1, block == 0 ? size : std::min(block, size));
  };
  q.row_block = tile(recipe.row_block, x.rows);
  q.k_block = tile(recipe.k_block, x.k);
  q.codes.resize(x.values.size());
  const auto tiles = static_cast<std::size_t>(q.tile_rows() * q.tile_columns());
  q.scales.resize(tiles);
  q.inverse_scales.resize(tiles);
  if (is_mx(recipe.rule)) q.e8m0.resize(tiles);
  return q;
}

void store(QuantizedTensor& q, std::size_t tile, const TileScale& scale) {
  q.scales[tile] = scale.scale;
  q.inverse_scales[tile] = scale.inverse_scale;
  if (!q.e8m0.empty()) q.e8m0[tile] = scale.e8m0;
}

/// to[i] = x[i] * scale, or x[i] / inverse_scale; a NaN is canonical.
void apply_scale(std::span<const float> x, const TileScale& scale, bool divide, float* to) {
  const float s = divide ? scale.inverse_scale : scale.scale;
  if (divide)
    for (std::size_t i = 0; i < x.size(); ++i) to[i] = canonical(x[i] / s);
  else
    for (std::size_t i = 0; i < x.size(); ++i) to[i] = canonical(x[i] * s);
}

/// The amax of all of `x`, in parallel: the maximum does not depend on the order.
float whole_amax(std::span<const float> x, bool ignore_nan, int threads) {
  const auto size = static_cast<std::int64_t>(x.size());
  const std::int64_t chunks = ceil_divide(size, kChunk);
  std::vector<float> partial(static_cast<std::size_t>(chunks));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto begin = static_cast<std::size_t>(c * kChunk);
    const auto length = static_cast<std::size_t>(std::min(kChunk, size - c * kChunk));
    partial[static_cast<std::size_t>(c)] = amax(x.subspan(begin, length), ignore_nan);
  }
  return amax(partial, ignore_nan);
}

/// One scale for everything.
void encode_whole(const Recipe& recipe, const FloatMatrix& x, const TileScale& scale, int threads,
                  QuantizedTensor& q) {
  for (std::size_t tile = 0; tile < q.scales.size(); ++tile) store(q, tile, scale);
  const auto size = static_cast<std::int64_t>(x.values.size());
  const std::int64_t chunks = ceil_divide(size, kChunk);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto begin = static_cast<std::size_t>(c * kChunk);
    const auto length = static_cast<std::size_t>(std::min(kChunk, size - c * kChunk));
    encode_scaled(format(recipe.format), recipe.policy, x.values.subspan(begin, length), scale,
                  recipe.rule == ScaleRule::deepseek, std::span(q.codes).subspan(begin, length));
  }
}

/// One tile's part of a row.
struct TileRange {
  std::size_t begin = 0;
  std::size_t width = 0;
};

TileRange tile_range(const QuantizedTensor& q, std::int64_t column) {
  const std::int64_t begin = column * q.k_block;
  return {static_cast<std::size_t>(begin),
          static_cast<std::size_t>(std::min(q.k_block, q.k - begin))};
}

/// The larger amax; a NaN wins.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

/// The amaxes, scales and codes of the tiles `row` while they are in cache.
void encode_tile_row(const Recipe& recipe, const FloatMatrix& x, std::int64_t row,
                     QuantizedTensor& q) {
  const std::int64_t r0 = row * q.row_block;
  const std::int64_t r1 = std::min(r0 + q.row_block, x.rows);
  const auto columns = static_cast<std::size_t>(q.tile_columns());
  const bool ignore_nan = amax_ignores_nan(recipe.rule);
  const auto row_of = [&](std::int64_t r) {
    return x.values.subspan(static_cast<std::size_t>(r * x.k), static_cast<std::size_t>(x.k));
  };
  std::vector<TileScale> scales(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    const TileRange range = tile_range(q, static_cast<std::int64_t>(c));
    float largest = 0.0F;
    for (std::int64_t r = r0; r < r1; ++r)
      largest = larger(amax(row_of(r).subspan(range.begin, range.width), ignore_nan), largest);
    scales[c] = tile_scale({.rule = recipe.rule,
                            .format = recipe.format,
                            .power_of_two = recipe.power_of_two,
                            .amax_floor = recipe.amax_floor},
                           largest);
    store(q, static_cast<std::size_t>(row) * columns + c, scales[c]);
  }
  // A row of many small tiles is cast in one call.
  std::vector<float> scaled(static_cast<std::size_t>(x.k));
  const std::span<std::uint8_t> codes(q.codes);
  for (std::int64_t r = r0; r < r1; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const TileRange range = tile_range(q, static_cast<std::int64_t>(c));
      apply_scale(row_of(r).subspan(range.begin, range.width), scales[c],
                  recipe.rule == ScaleRule::deepseek, scaled.data() + range.begin);
    }
    encode(scaled, codes.subspan(static_cast<std::size_t>(r * x.k), scaled.size()),
           {.format = recipe.format, .policy = recipe.policy});
  }
}

QuantizedTensor quantize_tiles(const Recipe& recipe, const FloatMatrix& x, int threads) {
  QuantizedTensor q = allocate(recipe, x);
  if (q.scales.size() == 1) {
    const TileScale scale =
        tile_scale({.rule = recipe.rule,
                    .format = recipe.format,
                    .power_of_two = recipe.power_of_two,
                    .amax_floor = recipe.amax_floor},
                   recipe.rule == ScaleRule::unit
                       ? 0.0F
                       : whole_amax(x.values, amax_ignores_nan(recipe.rule), threads));
    encode_whole(recipe, x, scale, threads, q);
    return q;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t row = 0; row < q.tile_rows(); ++row) encode_tile_row(recipe, x, row, q);
  return q;
}

QuantizedTensor quantize_with(const Recipe& recipe, const FloatMatrix& x,
                              const std::optional<TileScale>& scale, int threads) {
  if (!scale) return quantize_tiles(recipe, x, threads);
  QuantizedTensor q = allocate(recipe, x);
  encode_whole(recipe, x, *scale, threads, q);
  return q;
}

}  // namespace

void encode_scaled(const Format& f, const CastPolicy& policy, std::span<const float> x,
                   const TileScale& scale, bool divide, std::span<std::uint8_t> codes) {
  require(x.size() == codes.size(), "codes", fmt::format("{} codes, as x", x.size()),
          fmt::format("{}", codes.size()));
  // Scaled here and not by `encode`, which takes neither a scale of 0, Inf or
  // NaN nor a division; the buffer stays in the first cache.
  constexpr std::size_t kBuffer = 2048;
  std::array<float, kBuffer> scaled;
  const EncodeOptions options{.format = f.id, .policy = policy};
  for (std::size_t begin = 0; begin < x.size(); begin += kBuffer) {
    const std::size_t size = std::min(kBuffer, x.size() - begin);
    apply_scale(x.subspan(begin, size), scale, divide, scaled.data());
    encode(std::span<const float>(scaled.data(), size), codes.subspan(begin, size), options);
  }
}

CodeMatrix QuantizedTensor::matrix() const { return CodeMatrix::row_major(format, codes, rows, k); }

std::int64_t QuantizedTensor::scale_bytes() const {
  return static_cast<std::int64_t>(e8m0.empty() ? 4 * inverse_scales.size() : e8m0.size());
}

std::vector<float> dequantize(const QuantizedTensor& q) {
  const std::span<const float> table = decode_table(q.format);
  std::vector<float> values(q.codes.size());
  for (std::int64_t r = 0; r < q.rows; ++r)
    for (std::int64_t c = 0; c < q.k; ++c) {
      const auto at = static_cast<std::size_t>(r * q.k + c);
      const auto tile =
          static_cast<std::size_t>((r / q.row_block) * q.tile_columns() + c / q.k_block);
      values[at] = table[q.codes[at]] * q.inverse_scales[tile];
    }
  return values;
}

std::vector<float> transpose(const FloatMatrix& x) {
  std::vector<float> result(x.values.size());
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.k; ++c)
      result[static_cast<std::size_t>(c * x.rows + r)] =
          x.values[static_cast<std::size_t>(r * x.k + c)];
  return result;
}

Quantizer::Quantizer(Recipe recipe) : recipe_(recipe) {
  require(recipe.row_block >= 0 && recipe.k_block >= 0, "block", "rows and columns >= 0",
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
  require(format(recipe.format).storage_bits == 8 && !format(recipe.format).is_scale_only(),
          "format", "an 8-bit element format", format(recipe.format).name);
  if (recipe.source == ScaleSource::current) return;
  require(recipe.row_block == 0 && recipe.k_block == 0, "block",
          "one tile (0x0) for a scale from the past",
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
  if (recipe.source == ScaleSource::delayed) delayed_.emplace(recipe.format, recipe.delayed);
  if (recipe.source == ScaleSource::ms_amp) ms_amp_.emplace(recipe.format, recipe.window);
}

void Quantizer::take_step(float amax) {
  if (delayed_) {
    delayed_->record(amax);
    delayed_->update();
  }
  if (ms_amp_) ms_amp_->update();
}

std::optional<TileScale> Quantizer::past_scale(float amax) {
  if (delayed_) return TileScale{delayed_->scale(), delayed_->inverse_scale(), 0};
  if (ms_amp_) {
    const float scale = ms_amp_->scale_for(amax);
    return TileScale{scale, 1.0F / scale, 0};
  }
  if (recipe_.source != ScaleSource::calibration) return std::nullopt;
  require(calibrated_amax_.has_value(), "calibration", "at least one tensor", "none");
  return tile_scale({.rule = recipe_.rule,
                     .format = recipe_.format,
                     .power_of_two = recipe_.power_of_two,
                     .amax_floor = recipe_.amax_floor},
                    *calibrated_amax_);
}

void Quantizer::observe(const FloatMatrix& x) {
  validate(recipe_, x);
  require(recipe_.source != ScaleSource::current, "recipe",
          "one with a past (delayed, windowed or static)", "one that looks at the tensor itself");
  const float largest = whole_amax(x.values, delayed_.has_value(), thread_count(0));
  if (recipe_.source == ScaleSource::calibration) {
    require(std::isfinite(largest), "calibration", "finite values", "NaN or Inf in a batch");
    calibrated_amax_ = std::max(calibrated_amax_.value_or(0.0F), largest);
    return;
  }
  (void)past_scale(largest);
  take_step(largest);
}

QuantizedTensor Quantizer::quantize(const FloatMatrix& x, bool with_transpose, int threads) {
  validate(recipe_, x);
  threads = thread_count(threads);
  const float largest =
      delayed_ || ms_amp_ ? whole_amax(x.values, delayed_.has_value(), threads) : 0.0F;
  const std::optional<TileScale> scale = past_scale(largest);
  QuantizedTensor q = quantize_with(recipe_, x, scale, threads);
  if (with_transpose) {
    const std::vector<float> turned = transpose(x);
    const FloatMatrix matrix{turned, x.k, x.rows};
    validate(recipe_, matrix);
    q.transposed =
        std::make_shared<QuantizedTensor>(quantize_with(recipe_, matrix, scale, threads));
  }
  take_step(largest);
  return q;
}

QuantizedTensor quantize(const Recipe& recipe, const FloatMatrix& x, bool with_transpose,
                         int threads) {
  require(recipe.source == ScaleSource::current, "recipe", "one without a past",
          "a delayed, windowed or static one; use Quantizer");
  return Quantizer(recipe).quantize(x, with_transpose, threads);
}

}  // namespace fp8lab
