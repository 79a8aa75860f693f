#pragma once
// Amaxes, scales and codes of a tensor, tile by tile and thread by thread.
// docs/lab/scaling.md says how memory is read.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {

/// Whether `x` has the shape of the quantized tensor, or is its transpose.
enum class Source : std::uint8_t { as_is, transposed };

/// How a matrix is cut into strips: some rows of tiles, and some tiles of each. All sizes but
/// `down` and `across` are in elements and multiples of the tile's.
struct Strips {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t down = 0;    ///< strips along the rows
  std::int64_t across = 0;  ///< strips along k

  Strips(const QuantizedTensor& q, Source source);
};

/// One thread's memory and its way through strips. Needs rounding to nearest, with subnormals.
class StripEncoder {
 public:
  /// `stream`: the codes are more than the caches hold.
  StripEncoder(const Recipe& recipe, const FloatMatrix& x, Source source, const Strips& strips,
               Target target, bool stream, QuantizedTensor& q);

  /// Strip number `strip`, row of strips after row of strips.
  void run(std::int64_t strip);

  /// Whole rows of tiles, in strips.
  void run_rows(std::int64_t row, std::int64_t rows);

 private:
  void run(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns);
  void turn(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns);
  void tile_row(const float* values, std::int64_t stride, std::int64_t row, std::int64_t column,
                std::int64_t columns);

  const Recipe& recipe_;
  const FloatMatrix& x_;
  Strips strips_;
  std::int64_t piece_;  ///< elements of small tiles of a row that are finished together
  const TileKernels& kernels_;
  TileCaster caster_;
  TileScales scales_;
  QuantizedTensor& q_;
  std::vector<float> turned_;  ///< the strip's part of the transpose, where x is not as it is
};

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
