#include "fp8lab/scaling/encode_tiles.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {
namespace {

/// What a core reads fast a second time, row after row of a band of tall tiles.
constexpr std::int64_t kBandBytes = 2 << 20;
/// What its first cache keeps between the amaxes and the codes of small tiles, in elements: those
/// of processors with AVX-512 are larger.
std::int64_t piece_of(Target target) { return target == Target::avx512 ? 4096 : 2048; }
/// Elements that a thread takes at a time, where it may choose.
constexpr std::int64_t kChunk = 1 << 14;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;
/// And by a cast into the second cache, over the amaxes of the next piece, which fetch nothing.
constexpr std::size_t kFarAhead = 8192;
/// Rows of a strip whose source is transposed: whole cache lines of it.
constexpr std::int64_t kTransposedRows = 64;

/// Rows of a turned strip do not begin in the same set of the cache.
std::int64_t turned_stride(std::int64_t columns) { return columns + 16; }

}  // namespace

Strips::Strips(const QuantizedTensor& q, Source source) {
  const std::int64_t least_rows = source == Source::transposed ? kTransposedRows : 1;
  rows = ceil_divide(least_rows, q.row_block) * q.row_block;
  const std::int64_t fit = kBandBytes / 4 / rows / q.k_block * q.k_block;
  columns = std::max(q.k_block, fit);
  if (columns >= q.k) {
    columns = std::max<std::int64_t>(q.k, 1);
    rows = std::max(rows, kChunk / columns / q.row_block * q.row_block);
  }
  down = ceil_divide(q.rows, rows);
  across = ceil_divide(q.k, columns);
}

StripEncoder::StripEncoder(const Recipe& recipe, const FloatMatrix& x, Source source,
                           const Strips& strips, Target target, bool stream, QuantizedTensor& q)
    : recipe_(recipe),
      x_(x),
      strips_(strips),
      piece_(piece_of(target)),
      kernels_(tile_kernels(target)),
      caster_(recipe, target, stream),
      scales_(recipe, target, static_cast<std::size_t>(ceil_divide(strips.columns, q.k_block))),
      q_(q) {
  if (source == Source::transposed)
    turned_.resize(static_cast<std::size_t>(strips.rows * turned_stride(strips.columns)));
}

void StripEncoder::run(std::int64_t strip) {
  const std::int64_t row = strip / strips_.across * strips_.rows;
  const std::int64_t column = strip % strips_.across * strips_.columns;
  run(row, std::min(strips_.rows, q_.rows - row), column, std::min(strips_.columns, q_.k - column));
}

void StripEncoder::run_rows(std::int64_t row, std::int64_t rows) {
  const std::int64_t end = row + rows;
  for (; row < end; row += strips_.rows)
    for (std::int64_t c = 0; c < q_.k; c += strips_.columns)
      run(row, std::min(strips_.rows, end - row), c, std::min(strips_.columns, q_.k - c));
}

void StripEncoder::run(std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns) {
  const float* values = x_.values.data() + row * x_.k + column;
  std::int64_t stride = x_.k;
  if (!turned_.empty()) {
    turn(row, rows, column, columns);
    values = turned_.data();
    stride = turned_stride(columns);
  }
  // Tiles of one row are finished while the first cache has them.
  const std::int64_t piece =
      q_.row_block == 1 ? std::max(q_.k_block, piece_ / q_.k_block * q_.k_block) : columns;
  for (std::int64_t r = 0; r < rows; r += q_.row_block)
    for (std::int64_t c = 0; c < columns; c += piece)
      tile_row(values + r * stride + c, stride, row + r, column + c, std::min(piece, columns - c));
}

/// The strip's part of the transpose.
void StripEncoder::turn(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t stride = turned_stride(columns);
  for (std::int64_t line = 0; line < rows; line += kLine)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float* from = x_.values.data() + (column + c) * x_.k + row + line;
      float* to = turned_.data() + line * stride + c;
      for (std::int64_t r = 0; r < std::min(kLine, rows - line); ++r) to[r * stride] = from[r];
    }
}

/// Those tiles of one row of tiles that hold `columns` columns from `column` on.
void StripEncoder::tile_row(const float* values, std::int64_t stride, std::int64_t row,
                            std::int64_t column, std::int64_t columns) {
  const std::int64_t rows = std::min(q_.row_block, q_.rows - row);
  const auto count = static_cast<std::size_t>(columns);
  const auto block = static_cast<std::size_t>(q_.k_block);
  std::int32_t* largest = scales_.clear(static_cast<std::size_t>(ceil_divide(columns, q_.k_block)));
  // The cast of a piece is bound by arithmetic, and fetches the next piece on its way.
  const bool one_piece = rows == 1;
  for (std::int64_t r = 0; r < rows; ++r)
    kernels_.amax(values + r * stride, count, block, amax_ignores_nan(recipe_.rule),
                  one_piece ? 0 : kAhead, largest);
  scales_.make();
  scales_.store(q_.tile_of(row, column), q_);
  for (std::int64_t r = 0; r < rows; ++r)
    caster_.add(values + r * stride, count, block, scales_.factors(),
                {.near = one_piece ? count : kAhead, .far = kFarAhead},
                q_.codes.data() + (row + r) * q_.k + column);
}

namespace {

float factor_of(const Recipe& recipe, const TileScale& scale) {
  return divides(recipe.rule) ? scale.inverse_scale : scale.scale;
}

/// A NaN product has no sign left: what GPUs multiply gives the canonical NaN.
CastPolicy policy_of(const Recipe& recipe) {
  CastPolicy policy = recipe.policy;
  if (policy.nan == NanPolicy::signed_all_ones) policy.nan = NanPolicy::positive_all_ones;
  return policy;
}

/// Calls part(begin, size) for chunks of [0, size), in parallel.
template <typename Part>
void for_each_chunk(std::size_t size, int threads, const Part& part) {
  const std::int64_t chunks = ceil_divide(static_cast<std::int64_t>(size), kChunk);
  parallel_for(chunks, threads, [&](std::int64_t c) {
    const auto begin = static_cast<std::size_t>(c * kChunk);
    part(begin, std::min<std::size_t>(kChunk, size - begin));
  });
}

/// The larger of amax bits of chunks that finish in any order.
void keep_largest(std::int32_t bits, std::int32_t& largest) {
#pragma omp critical(fp8lab_scaling_amax)
  largest = std::max(largest, bits);
}

/// Whether `encode` gives the same bits with the scale in its kernel. It takes no scale of 0,
/// Inf or NaN, and keeps the sign of a NaN where the policy does.
bool fits_encode(const Recipe& recipe, const TileScale& scale) {
  return !divides(recipe.rule) && !adjusts_elements(recipe.rule) && std::isfinite(scale.scale) &&
         scale.scale > 0.0F && recipe.policy.nan != NanPolicy::signed_quiet;
}

}  // namespace

void store_scale(QuantizedTensor& q, std::size_t tile, const TileScale& scale) {
  q.scales[tile] = scale.scale;
  q.inverse_scales[tile] = scale.inverse_scale;
  if (!q.e8m0.empty()) q.e8m0[tile] = scale.e8m0;
}

float whole_amax(std::span<const float> x, bool ignore_nan, const Execution& execution) {
  const TileKernels& kernels = tile_kernels(execution.target);
  std::int32_t largest = 0;
  for_each_chunk(x.size(), execution.threads, [&](std::size_t begin, std::size_t size) {
    std::int32_t bits = 0;
    kernels.amax(x.data() + begin, size, size, ignore_nan, kAhead, &bits);
    keep_largest(bits, largest);
  });
  return std::bit_cast<float>(largest);
}

float encode_whole(const Recipe& recipe, std::span<const float> x, const TileScale& scale,
                   std::optional<bool> ignore_nan, std::span<std::uint8_t> codes,
                   const Execution& execution) {
  if (fits_encode(recipe, scale) && ignore_nan.value_or(true)) {
    return encode(x, codes,
                  {.format = recipe.format,
                   .policy = policy_of(recipe),
                   .scale = scale.scale,
                   .statistics = ignore_nan ? GatherStatistics::amax : GatherStatistics::none,
                   .threads = execution.threads,
                   .target = execution.target})
        .amax;
  }
  const TileKernels& kernels = tile_kernels(execution.target);
  const float factor = factor_of(recipe, scale);
  std::int32_t largest = 0;
  for_each_chunk(x.size(), execution.threads, [&](std::size_t begin, std::size_t size) {
    std::int32_t bits = 0;
    if (ignore_nan) kernels.amax(x.data() + begin, size, size, *ignore_nan, kAhead, &bits);
    TileCaster(recipe, execution.target, codes.size() >= kLargeCodes)
        .add(x.data() + begin, size, size, &factor, {.near = size}, codes.data() + begin);
    if (ignore_nan) keep_largest(bits, largest);
  });
  return std::bit_cast<float>(largest);
}

void encode_tiles(const Recipe& recipe, const FloatMatrix& x, Source source, QuantizedTensor& q,
                  const Execution& execution) {
  const Strips strips(q, source);
  const std::int64_t count = strips.down * strips.across;
  const bool stream = q.codes.size() >= kLargeCodes;
  parallel_for_with(
      count, execution.threads,
      [&] { return StripEncoder(recipe, x, source, strips, execution.target, stream, q); },
      [](StripEncoder& encoder, std::int64_t strip) { encoder.run(strip); });
}

void transpose_blocks(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  // By way of a block on the stack: rows of a matrix may be powers of two apart, and their
  // lines then push each other out of the first cache.
  constexpr std::int64_t kBlock = 64;
  std::array<float, kBlock * kBlock> turned;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kBlock)
    for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const std::int64_t width = std::min(kBlock, columns - c0);
      const std::int64_t height = std::min(kBlock, rows - r0);
      for (std::int64_t r = 0; r < height; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          turned[static_cast<std::size_t>(c * kBlock + r)] = from[(r0 + r) * columns + c0 + c];
      for (std::int64_t c = 0; c < width; ++c)
        std::copy_n(turned.data() + c * kBlock, height, to + (c0 + c) * rows + r0);
    }
}

}  // namespace fp8lab::scaling_detail
