#pragma once
// Amaxes, scales and codes of a tensor, tile by tile and thread by thread.
// docs/lab/scaling.md says how memory is read.

#include <optional>
#include <span>

#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/strip_encoder.hpp"

namespace fp8lab::scaling_detail {

/// How, never what: results do not depend on it.
struct Execution {
  Target target = Target::scalar;
  int threads = 1;
};

/// Writes the scale of tile number `tile` into `q`.
void store_scale(QuantizedTensor& q, std::size_t tile, const TileScale& scale);

/// The amax of all of `x`: one read.
float whole_amax(std::span<const float> x, bool ignore_nan, const Execution& execution);

/// Codes under one scale: one read. Returns the amax where `ignore_nan` says
/// how it is meant, else 0.
float encode_whole(const Recipe& recipe, std::span<const float> x, const TileScale& scale,
                   std::optional<bool> ignore_nan, std::span<std::uint8_t> codes,
                   const Execution& execution);

/// Scales and codes of all tiles of `q`, which has its shape: one read for tiles that a core's
/// caches hold.
void encode_tiles(const Recipe& recipe, const FloatMatrix& x, Source source, QuantizedTensor& q,
                  const Execution& execution);

/// to[c][r] = from[r][c] of a row-major [rows, columns] matrix.
void transpose_blocks(const float* from, std::int64_t rows, std::int64_t columns, float* to);

}  // namespace fp8lab::scaling_detail
