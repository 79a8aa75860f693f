#pragma once
// Products with wrong scales: the right numbers at a wrong place, or changed numbers.

#include <cstdint>
#include <optional>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

// Each returns nothing if the product has no such scales, or if nothing would change.

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
