#pragma once
// Layouts of scales in memory. The caller must name the layout: most grids fit more than one.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
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

/// The tiles `named`, or `tiles_of_shape`, without zeros. A grid of one row of named tiles may be a
/// vector, as one of one column may. Throws `Error` with the expected shape if
/// `shape` is not that of `named`.
ScaleTiles checked_tiles(std::string_view argument, std::span<const std::int64_t> shape,
                         const std::optional<ScaleTiles>& named, std::int64_t rows,
                         std::int64_t columns);

/// Accepts floats, and codes whose type is E8M0 or E4M3 (UE4M3). Throws `Error` for integers, which
/// could be numbers or codes.
void require_scale_type(std::string_view argument, ElementType type);

/// The layouts for R tiles of rows and T tiles along k.
enum class ScaleLayout : std::uint8_t {
  row_major,  ///< [R, T], as in the rest of the library
  /// [T, R]: torch's [1, n] for one scale per column, and [k / 128, n / 128]; DeepGEMM's scales
  /// for TMA in memory order, with R padded to 16 bytes (4 floats). Padding takes no part.
  column_major,
  /// [R, ceil(T / 4)] 32-bit integers of four E8M0 exponents each, the first in the lowest byte:
  /// DeepGEMM's scales on SM100, in the shape of the torch tensor. The default tiles are 1x128.
  packed_ue8m0,
  /// The same words in memory order: [ceil(T / 4), R], R padded to a multiple of 4.
  packed_ue8m0_column_major,
  /// The layout of cuBLASLt and torch for block-scaled instructions: blocks of 128
  /// rows and 4 tiles, 512 bytes each, blocks row-major and both sides padded. Byte
  /// (row % 32) * 16 + (row % 128) / 32 * 4 + tile % 4 of a block. E8M0 codes
  /// (default tiles 1x32) or UE4M3 codes (1x16), in any shape with this number of
  /// elements.
  blocked_128x4,
};
std::span<const ScaleLayout> scale_layouts();
std::string_view to_string(ScaleLayout layout);
/// The layout called `name`. Throws `Error` that lists the names.
ScaleLayout find_scale_layout(std::string_view name);

/// The position of a tile's scale in `blocked_128x4`, where K has `k_tiles` tiles.
std::int64_t blocked_128x4_position(std::int64_t k_tiles, std::int64_t row, std::int64_t tile);

/// Scales as a row-major grid over a matrix.
struct ScaleGrid {
  std::vector<float> values;
  ScaleTiles tiles;                 ///< without zeros
  FormatId format = FormatId::f32;  ///< of scales that are codes: e8m0fnu, or e4m3fn for UE4M3
  /// The values with the signs of UE4M3 codes, which are ignored; empty if none is set.
  std::vector<float> with_signs{};
};

/// The scales of a matrix [rows, columns]. The sign bit of UE4M3 codes is ignored; E8M0 code 255 is
/// NaN. F64 values must be exact in binary32. `named` unset: tiles of the layout, or
/// `tiles_of_shape`. Throws `Error` that names `argument` for types and shapes that do not fit.
///
/// Sources: DeepGEMM's README and `get_mn_major_tma_aligned_packed_ue8m0_tensor`; cuBLAS's manual,
/// "1D Block Scaling Factors Layout"; torchao's `to_blocked`. *Read* in their sources.
ScaleGrid read_scales(std::string_view argument, const TensorView& tensor, ScaleLayout layout,
                      const std::optional<ScaleTiles>& named, std::int64_t rows,
                      std::int64_t columns);

}  // namespace fp8lab
