#include "fp8lab/scaling/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/metrics/tensor.hpp"

namespace fp8lab {
namespace {

/// Adds up what `quantization_loss` says of each row: a row's tiles are runs.
void add_loss(const FloatMatrix& x, const QuantizedTensor& q, QuantizationStatistics& s) {
  const auto k = static_cast<std::size_t>(x.k);
  const auto columns = static_cast<std::size_t>(q.tile_columns());
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto begin = static_cast<std::size_t>(r) * k;
    const auto tiles = static_cast<std::size_t>(r / q.row_block) * columns;
    const QuantizationLoss loss = quantization_loss(
        x.values.subspan(begin, k), std::span(q.codes).subspan(begin, k), format(q.format),
        std::span(q.scales).subspan(tiles, columns), static_cast<std::size_t>(q.k_block));
    const double weight = static_cast<double>(k) / static_cast<double>(s.count);
    s.underflow_percent += weight * loss.underflow_percent;
    s.overflow_percent += weight * loss.overflow_percent;
    s.saturated_percent += weight * loss.saturated_percent;
    s.nan_percent += weight * loss.nan_percent;
  }
}

void add_scale_range(const QuantizedTensor& q, QuantizationStatistics& s) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0.0;
  for (const float scale : q.scales) {
    if (!std::isfinite(scale)) continue;
    low = std::min(low, static_cast<double>(scale));
    high = std::max(high, static_cast<double>(scale));
  }
  if (std::isinf(low)) return;
  s.scale_min = low;
  s.scale_max = high;
}

/// The smallest and the largest finite, non-zero magnitude of each tile.
void add_tile_ranges(const FloatMatrix& x, const QuantizedTensor& q, QuantizationStatistics& s) {
  std::vector<float> low(q.scales.size(), std::numeric_limits<float>::infinity());
  std::vector<float> high(q.scales.size(), 0.0F);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.k; ++c) {
      const float magnitude = std::abs(x.values[static_cast<std::size_t>(r * x.k + c)]);
      if (!(magnitude > 0.0F) || std::isinf(magnitude)) continue;
      const auto tile = q.tile_of(r, c);
      low[tile] = std::min(low[tile], magnitude);
      high[tile] = std::max(high[tile], magnitude);
    }
  PairwiseSum sum;
  double tiles = 0.0;
  for (std::size_t t = 0; t < low.size(); ++t) {
    if (high[t] == 0.0F) continue;
    const double bits = std::log2(static_cast<double>(high[t]) / static_cast<double>(low[t]));
    sum.add(bits);
    tiles += 1.0;
    s.tile_range_max = std::max(s.tile_range_max, bits);
  }
  if (tiles > 0.0) s.tile_range_mean = sum.total() / tiles;
}

}  // namespace

QuantizationStatistics quantization_statistics(const FloatMatrix& x, const QuantizedTensor& q) {
  const FloatEnvironment environment;
  require(x.rows == q.rows && x.k == q.k && x.values.size() == q.codes.size(), "x",
          fmt::format("[{}, {}], as the quantized tensor", q.rows, q.k),
          fmt::format("[{}, {}]", x.rows, x.k));
  QuantizationStatistics s;
  s.count = x.values.size();
  if (s.count == 0) return s;
  add_loss(x, q, s);
  add_scale_range(q, s);
  add_tile_ranges(x, q, s);
  const Comparison comparison = compare(x.values, dequantize(q));
  s.relative_l2 = comparison.relative_l2;
  s.sqnr_db = comparison.sqnr_db;
  s.scale_overhead_percent =
      100.0 * static_cast<double>(q.scale_bytes()) / static_cast<double>(q.codes.size());
  return s;
}

}  // namespace fp8lab
