#pragma once
// The shapes that scales may have. The number of values is not sufficient: a transposed grid, which
// is a common mistake, has the same number.

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

/// Parses `1x128`; 0 means all. Throws `Error` that names `argument`.
ScaleTiles parse_scale_tiles(std::string_view argument, std::string_view text);

/// The shape as a grid: [] and any shape of one value are [1, 1], [rows] is [rows, 1].
std::vector<std::int64_t> grid_shape(std::span<const std::int64_t> shape);

/// The tiles of scales of this shape over a matrix [rows, columns]: one scale, one per row, or a
/// grid whose tiles have sides of 16, 32, 128 or the whole matrix. Throws `Error` that lists the
/// possible shapes for any other shape (also a transposed grid, unless it is square), and for
/// [1, rows], torch's form of one scale per row.
ScaleTiles tiles_of_shape(std::string_view argument, std::span<const std::int64_t> shape,
                          std::int64_t rows, std::int64_t columns);

/// The tiles `named`, or `tiles_of_shape`, without zeros. Throws `Error` with the expected shape if
/// `shape` is not that of `named`.
ScaleTiles checked_tiles(std::string_view argument, std::span<const std::int64_t> shape,
                         const std::optional<ScaleTiles>& named, std::int64_t rows,
                         std::int64_t columns);

/// Accepts floats, and codes whose type is E8M0 or E4M3 (UE4M3). Throws `Error` for integers, which
/// could be numbers or codes.
void require_scale_type(std::string_view argument, ElementType type);

}  // namespace fp8lab
