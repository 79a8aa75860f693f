#pragma once
// The shapes that scales may have. A number of values that fits is not enough: a transposed
// grid has as many, and is the very mistake that users look for.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// The sides of the tiles of a grid of scales; 0: all rows, all columns.
struct ScaleTiles {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  friend bool operator==(const ScaleTiles&, const ScaleTiles&) = default;
};

/// `1x128`; 0 for all. Throws `Error` naming `argument`.
ScaleTiles parse_scale_tiles(std::string_view argument, std::string_view text);

/// The shape as a grid: [] is [1, 1], one value of any shape too, [rows] is [rows, 1].
std::vector<std::int64_t> grid_shape(std::span<const std::int64_t> shape);

/// The tiles of scales of this shape over a matrix [rows, columns]: one scale, one a row, or a
/// grid whose tiles have a side of 16, 32 or 128 or the whole matrix's. Throws `Error` with the
/// shapes that fit for one that none of these gives (a transposed grid, unless it is square),
/// and for [1, rows], torch's form of one scale a row.
ScaleTiles tiles_of_shape(std::string_view argument, std::span<const std::int64_t> shape,
                          std::int64_t rows, std::int64_t columns);

/// The tiles that are named, or `tiles_of_shape`, with whole sides. Throws `Error` with the
/// shape that named ones give, where it is another.
ScaleTiles checked_tiles(std::string_view argument, std::span<const std::int64_t> shape,
                         const std::optional<ScaleTiles>& named, std::int64_t rows,
                         std::int64_t columns);

/// Floats, or codes that say that they are E8M0 or E4M3 (UE4M3). Throws `Error` for integers, which
/// could be numbers or codes.
void require_scale_type(std::string_view argument, ElementType type);

}  // namespace fp8lab
