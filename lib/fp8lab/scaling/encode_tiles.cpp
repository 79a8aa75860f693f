#include "fp8lab/scaling/encode_tiles.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/scaling/strip_encoder.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {
namespace {

/// Elements that a thread takes at a time, where it may choose.
constexpr std::int64_t kChunk = 1 << 14;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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
