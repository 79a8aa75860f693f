#include "fp8lab/product/scale_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// 0 replaced by the size of the matrix.
ScaleTiles whole_sides(const ScaleTiles& tiles, std::int64_t rows, std::int64_t columns) {
  return {tiles.rows > 0 ? tiles.rows : std::max<std::int64_t>(rows, 1),
          tiles.columns > 0 ? tiles.columns : std::max<std::int64_t>(columns, 1)};
}

/// Sides that a tile is taken to have where nobody names it, in this order.
std::vector<std::int64_t> usual_sides(std::int64_t size, bool single) {
  std::vector<std::int64_t> sides{std::max<std::int64_t>(size, 1)};
  if (single && size > 1) sides.push_back(1);
  for (const std::int64_t side : {128, 32, 16})
    if (side < size) sides.push_back(side);
  return sides;
}

/// The usual tiles over [rows, columns] that make a grid of this shape: no two of them make
/// the same. Scales of single columns are no recipe's.
std::optional<ScaleTiles> fitting_tiles(std::span<const std::int64_t> grid, std::int64_t rows,
                                        std::int64_t columns) {
  if (grid.size() != 2) return std::nullopt;
  for (const std::int64_t row_side : usual_sides(rows, true))
    for (const std::int64_t column_side : usual_sides(columns, false))
      if (grid[0] == ceil_divide(rows, row_side) && grid[1] == ceil_divide(columns, column_side))
        return ScaleTiles{row_side, column_side};
  return std::nullopt;
}

std::string expected_shapes(std::int64_t rows, std::int64_t columns) {
  std::string text = fmt::format("one value, [{}] or [{}, 1]", rows, rows);
  for (const ScaleTiles& tiles :
       {ScaleTiles{1, 128}, ScaleTiles{128, 128}, ScaleTiles{1, 32}, ScaleTiles{1, 16}})
    text += fmt::format(", [{}, {}] ({}x{} tiles)", ceil_divide(rows, tiles.rows),
                        ceil_divide(columns, tiles.columns), tiles.rows, tiles.columns);
  return text + "; other tiles must be named, such as 64x64";
}

}  // namespace

ScaleTiles parse_scale_tiles(std::string_view argument, std::string_view text) {
  ScaleTiles tiles;
  const char* end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, tiles.rows);
  const bool has_x = rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x';
  const auto columns =
      has_x ? std::from_chars(rows.ptr + 1, end, tiles.columns) : std::from_chars_result{end, {}};
  require(has_x && columns.ec == std::errc() && columns.ptr == end && tiles.rows >= 0 &&
              tiles.columns >= 0,
          argument, "ROWSxK of a tile, as 1x128 (0: all)", fmt::format("'{}'", text));
  return tiles;
}

std::vector<std::int64_t> grid_shape(std::span<const std::int64_t> shape) {
  if (std::all_of(shape.begin(), shape.end(), [](std::int64_t side) { return side == 1; }))
    return {1, 1};
  if (shape.size() == 1) return {shape[0], 1};
  return {shape.begin(), shape.end()};
}

ScaleTiles tiles_of_shape(std::string_view argument, std::span<const std::int64_t> shape,
                          std::int64_t rows, std::int64_t columns) {
  const std::vector<std::int64_t> grid = grid_shape(shape);
  if (grid == std::vector<std::int64_t>{1, 1}) return whole_sides({}, rows, columns);
  const bool one_a_row_turned = grid.size() == 2 && grid[0] == 1 && grid[1] == rows;
  const std::optional<ScaleTiles> found = fitting_tiles(grid, rows, columns);
  if (found && !one_a_row_turned) return *found;
  if (!one_a_row_turned) throw Error(argument, expected_shapes(rows, columns), shape_text(shape));
  std::string along_k;
  if (found) along_k = fmt::format(", or named tiles (0x{}) for scales along k", found->columns);
  throw Error(
      argument, fmt::format("[{}] or [{}, 1] for one scale per row{}", rows, rows, along_k),
      fmt::format(
          "{}, torch's form for one scale per row: reshape it, or name the layout column_major",
          shape_text(shape)));
}

ScaleTiles checked_tiles(std::string_view argument, std::span<const std::int64_t> shape,
                         const std::optional<ScaleTiles>& named, std::int64_t rows,
                         std::int64_t columns) {
  if (!named) return tiles_of_shape(argument, shape, rows, columns);
  const ScaleTiles tiles = whole_sides(*named, rows, columns);
  const std::vector<std::int64_t> expected{ceil_divide(rows, tiles.rows),
                                           ceil_divide(columns, tiles.columns)};
  require(grid_shape(shape) == expected, argument,
          fmt::format("[ceil({}/{}), ceil({}/{})] = {}", rows, tiles.rows, columns, tiles.columns,
                      shape_text(expected)),
          shape_text(shape));
  return tiles;
}

void require_scale_type(std::string_view argument, ElementType type) {
  constexpr std::array kTypes{ElementType::f64,  ElementType::f32,     ElementType::f16,
                              ElementType::bf16, ElementType::e8m0fnu, ElementType::e4m3fn};
  require(std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end(), argument,
          fmt::format(
              "floats, or E8M0 or UE4M3 codes with a stated format ({} or e4m3fn, or a sidecar)",
              fp8lab::argument("scale_format", "e8m0fnu")),
          to_string(type));
}

}  // namespace fp8lab
