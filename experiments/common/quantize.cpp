#include "common/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

struct BlockRange {
  std::size_t row_begin, row_end, k_begin, k_end;
};

/// Fills in what the codes of all of `q` stand for; `scaled` holds what is cast.
void cast_scaled(const Backend& backend, const Format& f, const CastPolicy& policy, Quantized& q) {
  const std::vector<CastResult> cast = cast_all(backend, f, policy, q.scaled);
  const std::span<const float> decoded =
      f.code_bits() <= 16 ? decode_table(f.id) : std::span<const float>{};
  const std::size_t across = (q.k + q.block.k - 1) / q.block.k;
  for (std::size_t i = 0; i < cast.size(); ++i) {
    const std::uint32_t code = cast[i].code;
    const std::size_t tile = i / q.k / q.block.rows * across + i % q.k / q.block.k;
    if (!q.codes.empty()) q.codes[i] = static_cast<std::uint8_t>(code);
    q.scaled[i] = decoded.empty() ? static_cast<float>(decode(f, code)) : decoded[code];
    q.values[i] = q.scaled[i] * q.inverse_scales[tile];
  }
}

float amax_of(std::span<const float> x, std::size_t k, const BlockRange& range) {
  std::vector<float> rows;
  for (std::size_t r = range.row_begin; r < range.row_end; ++r)
    rows.push_back(amax(x.subspan(r * k + range.k_begin, range.k_end - range.k_begin), false));
  return amax(rows, false);
}

}  // namespace

CodeMatrix Quantized::matrix() const {
  return CodeMatrix::row_major(format, codes, static_cast<std::int64_t>(rows),
                               static_cast<std::int64_t>(k));
}

InverseScales Quantized::scales() const {
  return {inverse_scales, static_cast<std::int64_t>(block.rows),
          static_cast<std::int64_t>(block.k)};
}

Quantized quantize(std::span<const float> x, std::size_t rows, std::size_t k, ScaleBlock block,
                   const Format& f, const CastPolicy& policy, const Backend& backend) {
  require(x.size() == rows * k, "x", fmt::format("rows * k = {} * {} elements", rows, k),
          fmt::format("{}", x.size()));
  if (block.rows == 0) block.rows = std::max<std::size_t>(rows, 1);
  if (block.k == 0) block.k = std::max<std::size_t>(k, 1);
  Quantized q;
  q.format = f.id;
  q.rows = rows;
  q.k = k;
  q.block = block;
  q.codes.resize(f.storage_bits == 8 ? x.size() : 0);
  q.scaled.resize(x.size());
  q.values.resize(x.size());
  const ScaleOptions rule{
      .rule = ScaleRule::te, .format = f.id, .max_magnitude = policy.max_magnitude};
  for (std::size_t row = 0; row < rows; row += block.rows)
    for (std::size_t column = 0; column < k; column += block.k) {
      const BlockRange range{row, std::min(row + block.rows, rows), column,
                             std::min(column + block.k, k)};
      const TileScale tile = tile_scale(rule, amax_of(x, k, range));
      q.inverse_scales.push_back(tile.inverse_scale);
      for (std::size_t r = range.row_begin; r < range.row_end; ++r)
        for (std::size_t i = r * k + range.k_begin; i < r * k + range.k_end; ++i)
          q.scaled[i] = x[i] * tile.scale;
    }
  cast_scaled(backend, f, policy, q);
  return q;
}

Quantized quantize(std::span<const float> x, std::size_t tile_size, const Format& f,
                   const CastPolicy& policy, const Backend& backend) {
  return quantize(x, 1, x.size(), tile(tile_size), f, policy, backend);
}

}  // namespace fp8lab::experiments
