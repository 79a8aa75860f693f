#pragma once
// Amaxes, scales and codes of part of a matrix, on one thread.

#include <cstdint>
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

}  // namespace fp8lab::scaling_detail
