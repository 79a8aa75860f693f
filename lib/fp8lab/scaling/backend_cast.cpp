#include "fp8lab/scaling/backend_cast.hpp"

#include <bit>
#include <cfenv>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab {
namespace {

/// A NaN product has no sign left, as on GPUs.
float scaled(float x, float scale, float inverse_scale, bool divide) {
  const float y = divide ? x / inverse_scale : x * scale;
  return std::isnan(y) ? std::bit_cast<float>(kCanonicalNan) : y;
}

/// Row `row` of `q`, whose element (row, c) is x[row * row_stride + c * stride].
void scale_row(bool divide, const QuantizedTensor& q, std::int64_t row, const float* x,
               std::int64_t stride, float* values) {
  const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
  const std::int64_t first_tile = row / q.row_block * q.tile_columns();
  for (std::int64_t c = 0; c < q.k; ++c) {
    const auto tile = static_cast<std::size_t>(first_tile + c / q.k_block);
    values[c] = scaled(x[c * stride], q.scales[tile], q.inverse_scales[tile], divide);
  }
}

void recast(const Recipe& recipe, const float* x, std::int64_t row_stride, std::int64_t stride,
            int threads, QuantizedTensor& q) {
  const bool divide = recipe.rule == ScaleRule::deepseek;
  std::vector<float> values(q.codes.size());
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t row = 0; row < q.rows; ++row)
    scale_row(divide, q, row, x + row * row_stride, stride, values.data() + row * q.k);
  cast_on_backend(recipe.format, recipe.policy, values, q.codes);
}

}  // namespace

void recast_on_backend(const Recipe& recipe, const FloatMatrix& x, int threads,
                       QuantizedTensor& q) {
  if (!backend_casts()) return;
  recast(recipe, x.values.data(), x.k, 1, threads, q);
  if (q.transposed) recast(recipe, x.values.data(), 1, x.k, threads, *q.transposed);
}

void recast_on_backend(FormatId format, const CastPolicy& policy, std::span<const float> x,
                       const TileScale& scale, bool divide, std::span<std::uint8_t> codes) {
  if (!backend_casts()) return;
  std::vector<float> values;
  values.reserve(x.size());
  {
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    for (const float v : x) values.push_back(scaled(v, scale.scale, scale.inverse_scale, divide));
  }
  cast_on_backend(format, policy, values, codes);
}

}  // namespace fp8lab
