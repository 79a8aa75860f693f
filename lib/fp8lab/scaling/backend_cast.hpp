#pragma once
// The casts of a quantized tensor on a backend.

#include <cstdint>
#include <span>

#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// Replaces the codes of `q`, and of its transpose, by those of `backend`
/// where that has the cast: products with the scales of `q` on the host, as the recipe
/// rounds them, then one cast of the whole tensor.
void recast_on(const Backend& backend, const Recipe& recipe, const FloatMatrix& x, int threads,
               QuantizedTensor& q);

/// The same for the codes of values under one scale; arguments as `encode_scaled`.
void recast_on(const Backend& backend, FormatId format, const CastPolicy& policy,
               std::span<const float> x, const TileScale& scale, bool divide,
               std::span<std::uint8_t> codes);

}  // namespace fp8lab
