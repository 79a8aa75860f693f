#pragma once
// Products with wrong scales: the right numbers at a wrong place, or changed numbers.

#include <cstdint>
#include <functional>
#include <optional>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

// Each returns nothing if the product has no such scales, or if nothing would change. The result
// need not be a product that the instruction can compute: `GemmProblem` says which scales it takes.

/// A grid of scales over a matrix.
struct ScaleTileGrid {
  std::int64_t rows = 0;       ///< of tiles
  std::int64_t columns = 0;    ///< of tiles along K
  std::int64_t row_block = 0;  ///< rows of the matrix in a tile
  std::int64_t k_block = 0;    ///< terms in a tile
  std::int64_t k = 0;          ///< terms of the matrix
};

/// The place from which a wrong kernel reads the scale of a tile: a position row * columns + column
/// of the right grid. Positions beyond the grid read its last value; `kNoScale` reads 1, and
/// `kScalePadding` the value of code 0.
using ScalePosition =
    std::function<std::int64_t(const ScaleTileGrid&, std::int64_t row, std::int64_t column)>;
inline constexpr std::int64_t kNoScale = -1;
inline constexpr std::int64_t kScalePadding = -2;

namespace scale_positions {

/// The tile `by` further on along K, limited to the first and last tile. -1: a stale scale, that of
/// the previous tile.
ScalePosition moved_along_k(std::int64_t by);
/// The first tile along K for all of K.
ScalePosition first_of_k();
/// The row of tiles `by` further on, modulo their number.
ScalePosition moved_along_rows(std::int64_t by);
/// Row r of tiles reads row r xor `mask`, if there is one.
ScalePosition rows_xor(std::int64_t mask);
/// Every tile but those of this column reads its own scale, and those have none.
ScalePosition without_column(std::int64_t column);
/// The last tile along K, if it is shorter than the others, has the scale of the tile before.
ScalePosition tail_as_before();

/// How the scales lie in memory if a kernel takes a tile to be `k_block` terms wide.
enum class WiderRows : std::uint8_t {
  own,     ///< rows as long as they are: the kernel reads the first ones of a row
  short_,  ///< rows as long as the wider tiles make them: later rows begin too early
  first,   ///< the scale of the first right tile in each wider one
  last,    ///< that of the last right tile
};
ScalePosition group_along_k(std::int64_t k_block, WiderRows rows);
/// Narrower tiles than the right ones: number i of a row reads scale i from the row's start.
ScalePosition narrower_tiles();

/// A grid in row-major order read as if it were column-major.
ScalePosition column_major();
/// A grid in column-major order read as if it were row-major.
ScalePosition row_major_of_column_major();
/// A grid in row-major order read in the order of `ScaleLayout::blocked_128x4`.
ScalePosition blocked_128x4();
/// A grid in the order of `ScaleLayout::blocked_128x4` read in row-major order.
ScalePosition row_major_of_blocked_128x4();
/// Tiles of half as many terms than the right ones, of which number i along K reads column
/// ceil(i / 2): the second half of a tile has the next one's scale.
ScalePosition half_tiles_rounded_up();

}  // namespace scale_positions

/// Each inverse scale replaced by a function of it.
std::optional<Product> with_scale_values(const Product& product, Side side,
                                         const std::function<float(float)>& of);

/// The scales read from other positions.
std::optional<Product> with_scales_read_at(const Product& product, Side side,
                                           const ScalePosition& position);

/// The same for the sampled product. With `k_block` unequal to 0 the tiles that are read have so
/// many terms, `column` counts them, and an interval of promotion is as short.
std::optional<Product> take_with_scales_read_at(const Product& product, const Sample& sample,
                                                Side side, const ScalePosition& position,
                                                std::int64_t k_block = 0);

/// The grid of an operand's scales.
ScaleTileGrid scale_grid(const InverseScales& scales, const CodeMatrix& matrix);

/// The sampled product with other scales of an operand: `scale(row, tile)` of a row of the whole
/// matrix and of tile number `tile` of `k_block` terms. Nothing if no scale changes.
std::optional<Product> take_with_scales_of(
    const Product& product, const Sample& sample, Side side, std::int64_t k_block,
    const std::function<float(std::int64_t row, std::int64_t tile)>& scale);

/// 1 / inverse scale: a division in place of a multiplication.
std::optional<Product> with_inverted_scales(const Product& product, Side side);
/// Inverse scales rounded to nearest even in a narrower format (bf16, f16).
std::optional<Product> with_rounded_scales(const Product& product, Side side, FormatId format);
/// Each tile along K has the scale of the tile `by` further on, limited to the first and last tile.
/// -1: a stale scale, that of the previous tile.
std::optional<Product> with_scales_moved_along_k(const Product& product, Side side,
                                                 std::int64_t by);
/// The scale of the first tile along K for all of K.
std::optional<Product> with_first_scale_of_k(const Product& product, Side side);
/// Each row of tiles has the scales of the row of tiles `by` further on, modulo their number.
std::optional<Product> with_scales_moved_along_rows(const Product& product, Side side,
                                                    std::int64_t by);
/// The memory of the scales read as if a tile had `k_block` terms: the tile that begins at term k
/// has value number k / k_block from the start of its row, which may be in the next row.
std::optional<Product> with_scale_group_along_k(const Product& product, Side side,
                                                std::int64_t k_block);
/// Row r has the scales of row r / row_block of the grid, limited to the last row.
std::optional<Product> with_scale_group_along_rows(const Product& product, Side side,
                                                   std::int64_t row_block);

}  // namespace fp8lab
