#include "fp8lab/scaling/backend_cast.hpp"

#include <cfenv>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

/// Row `row` of `q`, whose element (row, c) is x[row * row_stride + c * stride].
void scale_row(ScaleRule rule, const QuantizedTensor& q, std::int64_t row, const float* x,
               std::int64_t stride, float* values) {
  const FloatEnvironment environment;
  const std::int64_t first_tile = row / q.row_block * q.tile_columns();
  for (std::int64_t c = 0; c < q.k; ++c) {
    const auto tile = static_cast<std::size_t>(first_tile + c / q.k_block);
    values[c] = scaled_element(rule, x[c * stride], {q.scales[tile], q.inverse_scales[tile], 0});
  }
}

void recast(const Backend& backend, const Recipe& recipe, const float* x, std::int64_t row_stride,
            std::int64_t stride, int threads, QuantizedTensor& q) {
  std::vector<float> values(q.codes.size());
  parallel_for(q.rows, threads, [&](std::int64_t row) {
    scale_row(recipe.rule, q, row, x + row * row_stride, stride, values.data() + row * q.k);
  });
  try_cast_on(backend, recipe.format, recipe.policy, values, q.codes);
}

}  // namespace

void recast_on(const Backend& backend, const Recipe& recipe, const FloatMatrix& x, int threads,
               QuantizedTensor& q) {
  if (!backend.cast) return;
  recast(backend, recipe, x.values.data(), x.k, 1, threads, q);
  if (q.transposed) recast(backend, recipe, x.values.data(), 1, x.k, threads, *q.transposed);
}

void recast_on(const Backend& backend, FormatId format, const CastPolicy& policy,
               std::span<const float> x, const TileScale& scale, bool divide,
               std::span<std::uint8_t> codes) {
  if (!backend.cast) return;
  std::vector<float> values;
  values.reserve(x.size());
  {
    const FloatEnvironment environment;
    const ScaleRule rule = divide ? ScaleRule::deepseek : ScaleRule::unit;
    for (const float v : x) values.push_back(scaled_element(rule, v, scale));
  }
  try_cast_on(backend, format, policy, values, codes);
}

}  // namespace fp8lab
