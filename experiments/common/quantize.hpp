#pragma once
// Casts a tensor with TransformerEngine's current scaling, per tensor or per
// block, into any format of up to 32 bits and under any cast policy, and back:
// `fp8lab/scaling` does that for systems' recipes and eight bits.
//   q     = cast(x * scale), scale = `tile_scale` of the block's amax
//   x_hat = q * inverse_scale
// A policy whose grid ends early scales to its end.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::experiments {

/// How many elements share one scale: blocks of `rows` by `k` of a row-major
/// [rows, k] matrix, the last ones possibly smaller; 0 means all of them.
struct ScaleBlock {
  std::size_t rows = 0;
  std::size_t k = 0;
};
inline constexpr ScaleBlock kPerTensor{0, 0};
constexpr ScaleBlock tile(std::size_t size) { return {1, size}; }

/// A quantized [rows, k] matrix and what it stands for.
struct Quantized {
  FormatId format = FormatId::e4m3fn;
  std::size_t rows = 0;
  std::size_t k = 0;
  ScaleBlock block;                   ///< with the zeros filled in
  std::vector<std::uint8_t> codes;    ///< [rows, k]; empty for formats wider than 8 bits
  std::vector<float> scaled;          ///< [rows, k], the decoded codes, still scaled
  std::vector<float> values;          ///< [rows, k], x_hat
  std::vector<float> inverse_scales;  ///< [ceil(rows / block.rows), ceil(k / block.k)]

  /// As an operand of `gemm`. This object must outlive the views; 8-bit formats only.
  [[nodiscard]] CodeMatrix matrix() const;
  [[nodiscard]] InverseScales scales() const;
};

/// Quantizes row-major x [rows, k]. A NaN makes its block's amax NaN, so the
/// block has scale 1. `backend`: of casts to 8 bits. Throws `Error` if x has another size.
Quantized quantize(std::span<const float> x, std::size_t rows, std::size_t k, ScaleBlock block,
                   const Format& f, const CastPolicy& policy, const Backend& backend = {});

/// The same for a vector: one row, tiles of `tile_size` elements (0: per tensor).
Quantized quantize(std::span<const float> x, std::size_t tile_size, const Format& f,
                   const CastPolicy& policy, const Backend& backend = {});

}  // namespace fp8lab::experiments
