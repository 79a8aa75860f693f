#include "fp8lab/scaling/encode_tiles.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <vector>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {
namespace {

/// What a core reads fast a second time, row after row of a band of tall tiles.
constexpr std::int64_t kBandBytes = 2 << 20;
/// What its first cache keeps between the amaxes and the codes of small tiles, in elements.
constexpr std::int64_t kPiece = 2048;
/// Elements that a thread takes at a time, where it may choose.
constexpr std::int64_t kChunk = 1 << 14;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;
/// Rows of a strip whose source is transposed: whole cache lines of it.
constexpr std::int64_t kTransposedRows = 64;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

float factor_of(const Recipe& recipe, const TileScale& scale) {
  return divides(recipe) ? scale.inverse_scale : scale.scale;
}

/// A NaN product has no sign left: what GPUs multiply gives the canonical NaN.
CastPolicy policy_of(const Recipe& recipe) {
  CastPolicy policy = recipe.policy;
  if (policy.nan == NanPolicy::signed_all_ones) policy.nan = NanPolicy::positive_all_ones;
  return policy;
}

/// How a matrix is cut into strips: some rows of tiles, and some tiles of each.
struct Strips {
  std::int64_t rows = 0;     ///< of elements, a multiple of the tile's
  std::int64_t columns = 0;  ///< of elements, a multiple of the tile's
  std::int64_t down = 0;     ///< strips along the rows
  std::int64_t across = 0;   ///< strips along k

  Strips(const QuantizedTensor& q, std::int64_t least_rows) {
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
};

/// One thread's memory and its way through a strip. Needs rounding to nearest, with subnormals.
class StripEncoder {
 public:
  StripEncoder(const Recipe& recipe, const FloatMatrix& x, bool transposed, const Strips& strips,
               Target target, QuantizedTensor& q)
      : recipe_(recipe),
        x_(x),
        transposed_(transposed),
        kernels_(tile_kernels(target)),
        caster_(recipe, target, q.codes.size() >= kLargeCodes),
        scales_(recipe, target, static_cast<std::size_t>(ceil_divide(strips.columns, q.k_block))),
        q_(q) {
    if (transposed)
      turned_.resize(static_cast<std::size_t>(strips.rows * turned_stride(strips.columns)));
  }

  void run(const Strips& strips, std::int64_t strip) {
    const std::int64_t r0 = strip / strips.across * strips.rows;
    const std::int64_t c0 = strip % strips.across * strips.columns;
    const std::int64_t r1 = std::min(r0 + strips.rows, q_.rows);
    const std::int64_t width = std::min(strips.columns, q_.k - c0);
    const float* values = x_.values.data() + r0 * x_.k + c0;
    std::int64_t stride = x_.k;
    if (transposed_) {
      turn(r0, r1, c0, width);
      values = turned_.data();
      stride = turned_stride(width);
    }
    // Tiles of one row are finished while the first cache has them.
    const std::int64_t piece =
        q_.row_block == 1 ? std::max(q_.k_block, kPiece / q_.k_block * q_.k_block) : width;
    for (std::int64_t row = r0; row < r1; row += q_.row_block)
      for (std::int64_t c = 0; c < width; c += piece)
        tile_row(values + (row - r0) * stride + c, stride, row, c0 + c,
                 std::min(piece, width - c));
  }

 private:
  /// Rows that do not begin in the same set of the cache.
  static std::int64_t turned_stride(std::int64_t width) { return width + 16; }

  /// The strip's part of the transpose.
  void turn(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t width) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t stride = turned_stride(width);
    for (std::int64_t block = r0; block < r1; block += kLine)
      for (std::int64_t c = 0; c < width; ++c) {
        const float* from = x_.values.data() + (c0 + c) * x_.k + block;
        float* to = turned_.data() + (block - r0) * stride + c;
        for (std::int64_t r = 0; r < std::min(kLine, r1 - block); ++r) to[r * stride] = from[r];
      }
  }

  /// The tiles of one row of tiles that hold `width` columns from `c0` on.
  void tile_row(const float* values, std::int64_t stride, std::int64_t row, std::int64_t c0,
                std::int64_t width) {
    const std::int64_t rows = std::min(q_.row_block, q_.rows - row);
    const auto count = static_cast<std::size_t>(width);
    const auto block = static_cast<std::size_t>(q_.k_block);
    const auto tiles = static_cast<std::size_t>(ceil_divide(width, q_.k_block));
    const std::size_t ahead = rows == 1 ? count : kAhead;
    std::int32_t* largest = scales_.clear(tiles);
    for (std::int64_t r = 0; r < rows; ++r)
      kernels_.amax(values + r * stride, count, block, amax_ignores_nan(recipe_.rule), ahead,
                    largest);
    scales_.make();
    scales_.store(
        static_cast<std::size_t>(row / q_.row_block * q_.tile_columns() + c0 / q_.k_block), 1, q_);
    for (std::int64_t r = 0; r < rows; ++r)
      caster_.add(values + r * stride, count, block, scales_.factors(), ahead,
                  q_.codes.data() + (row + r) * q_.k + c0);
  }

  const Recipe& recipe_;
  const FloatMatrix& x_;
  bool transposed_;
  const TileKernels& kernels_;
  TileCaster caster_;
  TileScales scales_;
  QuantizedTensor& q_;
  std::vector<float> turned_;
};

/// Calls part(begin, size) for chunks of [0, size), in parallel.
template <typename Part>
void for_each_chunk(std::size_t size, int threads, const Part& part) {
  const std::int64_t chunks = ceil_divide(static_cast<std::int64_t>(size), kChunk);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto begin = static_cast<std::size_t>(c * kChunk);
    part(begin, std::min<std::size_t>(kChunk, size - begin));
  }
}

/// The larger of amax bits of chunks that finish in any order.
void keep_largest(std::int32_t bits, std::int32_t& largest) {
#pragma omp critical(fp8lab_scaling_amax)
  largest = std::max(largest, bits);
}

/// Whether `encode` gives the same bits with the scale in its kernel. It takes no scale of 0,
/// Inf or NaN, and keeps the sign of a NaN where the policy does.
bool fits_encode(const Recipe& recipe, const TileScale& scale) {
  return !divides(recipe) && std::isfinite(scale.scale) && scale.scale > 0.0F &&
         recipe.policy.nan != NanPolicy::signed_quiet;
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
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    TileCaster(recipe, execution.target, codes.size() >= kLargeCodes)
        .add(x.data() + begin, size, size, &factor, size, codes.data() + begin);
    if (ignore_nan) keep_largest(bits, largest);
  });
  return std::bit_cast<float>(largest);
}

void encode_tiles(const Recipe& recipe, const FloatMatrix& x, bool transposed, QuantizedTensor& q,
                  const Execution& execution) {
  const Strips strips(q, transposed ? kTransposedRows : 1);
  const std::int64_t count = strips.down * strips.across;
#pragma omp parallel num_threads(execution.threads)
  {
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    StripEncoder encoder(recipe, x, transposed, strips, execution.target, q);
#pragma omp for schedule(static)
    for (std::int64_t strip = 0; strip < count; ++strip) encoder.run(strips, strip);
  }
}

template <typename T>
void transpose_blocks(const T* from, std::int64_t rows, std::int64_t columns, T* to, int threads) {
  // By way of a block on the stack: rows of a matrix may be powers of two apart, and their
  // lines then push each other out of the first cache.
  constexpr std::int64_t kBlock = 64;
  const std::int64_t across = ceil_divide(columns, kBlock);
  const std::int64_t blocks = across * ceil_divide(rows, kBlock);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::array<T, kBlock * kBlock> turned;
    const std::int64_t c0 = block % across * kBlock;
    const std::int64_t r0 = block / across * kBlock;
    const std::int64_t width = std::min(kBlock, columns - c0);
    const std::int64_t height = std::min(kBlock, rows - r0);
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        turned[static_cast<std::size_t>(c * kBlock + r)] = from[(r0 + r) * columns + c0 + c];
    for (std::int64_t c = 0; c < width; ++c)
      std::copy_n(turned.data() + c * kBlock, height, to + (c0 + c) * rows + r0);
  }
}

template void transpose_blocks(const float*, std::int64_t, std::int64_t, float*, int);

}  // namespace fp8lab::scaling_detail
