#pragma once
// The transposed copy of a quantized tensor. docs/lab/scaling.md says how memory is read.

#include <cstdint>
#include <vector>

#include "fp8lab/cast/kernels/kernels.hpp"
#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/code_transposer.hpp"
#include "fp8lab/scaling/encode_tiles.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {

/// How a matrix is cut into blocks of whole tiles of both kinds.
struct CrossBlocks {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< a multiple of `cast_kernels::kCrossStep`, which k may not be
  std::int64_t tile = 0;     ///< columns of a tile of the original
  std::int64_t tiles = 0;    ///< in a row of a block
  std::int64_t height = 0;   ///< rows of a tile of the transpose

  /// Rows are as many as suit `threads` threads.
  CrossBlocks(const QuantizedTensor& q, const QuantizedTensor& turned, int threads);

  /// Whether tiles are small enough for a block of whole ones.
  static bool fit(const QuantizedTensor& q, const QuantizedTensor& turned);
};

/// One thread's memory and its way through blocks. Needs rounding to nearest, with subnormals.
class CrossEncoder {
 public:
  CrossEncoder(const Recipe& recipe, const FloatMatrix& x, const CrossBlocks& blocks, Target target,
               QuantizedTensor& q, QuantizedTensor& turned);

  /// `rows` <= blocks.rows rows that begin a block: scales and codes of both copies.
  void run_rows(std::int64_t row, std::int64_t rows);

 private:
  /// Those rows of a block, or of what is left of one, that lie in one tile of each column. Kernels
  /// see whole rows of a block, with zeros where columns end.
  struct Band {
    std::int64_t row = 0;   ///< in the block
    std::int64_t tile = 0;  ///< its first one among the block's tiles of columns
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    const float* x = nullptr;
    const float* next = nullptr;  ///< those after these
    std::uint8_t* codes = nullptr;
  };

  void run(std::int64_t row, std::int64_t rows, std::int64_t column);
  void run(const Band& band);
  void load(const Band& band);
  void ignore_nan(const Band& band);
  void encode_crossed(const Band& band, bool bounded);
  void encode_apart(const Band& band);

  const Recipe& recipe_;
  const FloatMatrix& x_;
  CrossBlocks blocks_;
  const TileKernels& kernels_;
  TileCaster caster_;
  CodeTransposer turner_;
  std::vector<TileScales> groups_;    ///< of rows, block beside block
  TileScales* row_scales_ = nullptr;  ///< those of this block
  TileScales column_scales_;          ///< band after band, blocks_.columns tiles each
  QuantizedTensor& q_;
  QuantizedTensor& turned_;
  std::int64_t stride_;            ///< of values_
  CacheLineVector<float> values_;  ///< a band, as rows that begin in other sets of a cache
  std::int64_t code_stride_;       ///< of the codes below
  CodeVector column_codes_;        ///< not turned yet
  CodeVector row_codes_;           ///< those of a padded band
};

/// Fills `turned`, which has its shape [x.k, x.rows], and, where `with_original` is set, `q`
/// too: one read serves both where tiles allow. Else `q` is finished.
void encode_transposed(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                       QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution);

}  // namespace fp8lab::scaling_detail
