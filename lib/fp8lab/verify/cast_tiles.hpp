#pragma once
// A cast in tiles, measured: the codes of a tile say between which bounds its scale was and how
// results were rounded, whatever scale was meant.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// A cast of a matrix [rows, columns] under one scale for each tile.
struct TiledCast {
  CastSpec spec;
  std::span<const float> x;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  ScaleTiles tiles;               ///< both sides above 0
  std::span<const float> scales;  ///< row-major grid of tiles; multiply x
  std::span<const std::byte> golden;
  std::span<const std::byte> got;

  [[nodiscard]] std::int64_t tile_columns() const {
    return (columns + tiles.columns - 1) / tiles.columns;
  }
  /// The scale of an element.
  [[nodiscard]] float scale_at(std::int64_t row, std::int64_t column) const {
    return scales[static_cast<std::size_t>(row / tiles.rows * tile_columns() +
                                           column / tiles.columns)];
  }
  [[nodiscard]] std::int64_t tile_rows() const { return (rows + tiles.rows - 1) / tiles.rows; }
};

/// What the wrong tiles have in common: the scales of other tiles, another factor, another
/// rounding. The sample is all elements of at most 512 wrong tiles and of some right ones.
Diagnosis diagnose_tiles(const TiledCast& cast);

/// The same bits, or both NaN.
bool same_scale(float a, float b);

/// What stands in a grid [rows, columns] in place of the right scales, for a reader; empty if
/// nothing differs.
std::vector<std::string> describe_scales(std::span<const float> right, std::span<const float> got,
                                         std::int64_t columns);

}  // namespace fp8lab
