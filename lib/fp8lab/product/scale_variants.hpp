#pragma once
// Products whose scales were read wrongly: the right numbers in a wrong place, or changed.

#include <cstdint>
#include <optional>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

// Each gives nothing where the product has no such scales, or where nothing would change.

/// 1 / inverse scale: divided where the kernel should have multiplied.
std::optional<Product> with_inverted_scales(const Product& product, Side side);
/// Inverse scales rounded to nearest even in a narrower format (bf16, f16).
std::optional<Product> with_rounded_scales(const Product& product, Side side, FormatId format);
/// Each tile along K has the scale of the tile `by` further on; at the ends, the last there is.
/// -1: a stale scale, of the tile before.
std::optional<Product> with_scales_moved_along_k(const Product& product, Side side,
                                                 std::int64_t by);
/// The scale of the first tile along K for all of K.
std::optional<Product> with_first_scale_of_k(const Product& product, Side side);
/// Each row of tiles has the scales of the row of tiles `by` further on, round again.
std::optional<Product> with_scales_moved_along_rows(const Product& product, Side side,
                                                    std::int64_t by);
/// The scales' memory read as if a tile had `k_block` terms: the tile that begins at term k has
/// value number k / k_block from its row's beginning, which may run on into the next row.
std::optional<Product> with_scale_group_along_k(const Product& product, Side side,
                                                std::int64_t k_block);
/// Row r has the scales of row r / row_block of the grid, at most the last.
std::optional<Product> with_scale_group_along_rows(const Product& product, Side side,
                                                   std::int64_t row_block);

}  // namespace fp8lab
