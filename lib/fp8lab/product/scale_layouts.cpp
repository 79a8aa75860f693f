#include "fp8lab/product/scale_layouts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

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
  if (columns == 0 && grid == std::vector<std::int64_t>{rows, 1})
    return whole_sides({1, 0}, rows, 0);
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
  const bool one_row = expected[0] == 1 && shape.size() == 1 && shape[0] == expected[1];
  require(one_row || grid_shape(shape) == expected, argument,
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

namespace {

constexpr std::array kLayouts{ScaleLayout::row_major, ScaleLayout::column_major,
                              ScaleLayout::packed_ue8m0, ScaleLayout::packed_ue8m0_column_major,
                              ScaleLayout::blocked_128x4};
constexpr std::array<std::string_view, kLayouts.size()> kNames{
    "row_major", "column_major", "packed_ue8m0", "packed_ue8m0_column_major", "blocked_128x4"};

constexpr std::int64_t kTmaBytes = 16;
constexpr std::int64_t kWordsAligned = kTmaBytes / 4;

/// Of which format the elements are codes, if they are.
FormatId code_format(const TensorView& tensor) {
  const FormatId id = format_of(tensor.type).value_or(FormatId::f32);
  return id == FormatId::e8m0fnu || id == FormatId::e4m3fn ? id : FormatId::f32;
}

std::vector<float> values_of(std::string_view argument, const TensorView& tensor) {
  require_scale_type(argument, tensor.type);
  return to_float_exactly(tensor, argument);
}

/// Values [rows, columns], turned, of which the first `kept` columns count.
std::vector<float> turned(const std::vector<float>& values, std::int64_t rows, std::int64_t columns,
                          std::int64_t kept) {
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(rows * kept));
  for (std::int64_t column = 0; column < kept; ++column)
    for (std::int64_t row = 0; row < rows; ++row)
      result.push_back(values[static_cast<std::size_t>(row * columns + column)]);
  return result;
}

ScaleTiles whole_tiles(const ScaleTiles& tiles, std::int64_t rows, std::int64_t columns) {
  return {tiles.rows > 0 ? tiles.rows : std::max<std::int64_t>(rows, 1),
          tiles.columns > 0 ? tiles.columns : std::max<std::int64_t>(columns, 1)};
}

ScaleGrid read_column_major(std::string_view argument, const TensorView& tensor,
                            const std::optional<ScaleTiles>& named, std::int64_t rows,
                            std::int64_t columns) {
  std::vector<float> values = values_of(argument, tensor);
  if (tensor.shape.size() != 2)
    return {std::move(values), checked_tiles(argument, tensor.shape, named, rows, columns),
            code_format(tensor)};
  const std::int64_t k_tiles = tensor.shape[0];
  const std::int64_t stored = tensor.shape[1];
  const auto aligned = [&](std::int64_t count) {
    return round_up(count, kTmaBytes / static_cast<std::int64_t>(element_bytes(tensor.type)));
  };
  std::int64_t kept = stored;
  if (named) {
    const ScaleTiles tiles = whole_tiles(*named, rows, columns);
    const std::int64_t row_tiles = ceil_divide(rows, tiles.rows);
    if (stored == aligned(row_tiles)) kept = row_tiles;
  } else if (stored != rows && stored == aligned(rows)) {
    kept = rows;
  }
  ScaleTiles tiles;
  try {
    tiles = checked_tiles(argument, std::array{kept, k_tiles}, named, rows, columns);
  } catch (const Error& error) {
    throw Error(fmt::format("{} (column_major: the transposed shape)", error.what()));
  }
  return {turned(values, k_tiles, stored, kept), tiles, code_format(tensor)};
}

/// Tiles for layouts whose shape is padded and so does not say them.
ScaleTiles tiles_of_layout(const std::optional<ScaleTiles>& named, std::int64_t usual,
                           std::int64_t rows, std::int64_t columns) {
  return whole_tiles(named.value_or(ScaleTiles{1, usual}), rows, columns);
}

ScaleGrid read_packed(std::string_view argument, const TensorView& tensor, bool as_in_memory,
                      const std::optional<ScaleTiles>& named, std::int64_t rows,
                      std::int64_t columns) {
  require(tensor.type == ElementType::i32 || tensor.type == ElementType::u32, argument,
          "32-bit integers, each with four E8M0 exponents (packed_ue8m0)", to_string(tensor.type));
  const ScaleTiles tiles = tiles_of_layout(named, 128, rows, columns);
  const std::int64_t row_tiles = ceil_divide(rows, tiles.rows);
  const std::int64_t k_tiles = ceil_divide(columns, tiles.columns);
  const std::int64_t words = ceil_divide(k_tiles, std::int64_t{4});
  using Shape = std::vector<std::int64_t>;
  const Shape plain = as_in_memory ? Shape{words, row_tiles} : Shape{row_tiles, words};
  const Shape padded =
      as_in_memory ? Shape{words, round_up(row_tiles, kWordsAligned)} : Shape{row_tiles, words};
  require(tensor.shape == plain || tensor.shape == padded, argument,
          fmt::format("{} words for tiles of {}x{} (packed_ue8m0{})", shape_text(plain), tiles.rows,
                      tiles.columns,
                      padded == plain ? "" : fmt::format(", or padded {}", shape_text(padded))),
          shape_text(tensor.shape));
  const HeldTensor dense = row_major(tensor);
  const std::span<const float> decode = decode_table(FormatId::e8m0fnu);
  ScaleGrid grid{{}, tiles, FormatId::e8m0fnu};
  grid.values.reserve(static_cast<std::size_t>(row_tiles * k_tiles));
  for (std::int64_t row = 0; row < row_tiles; ++row)
    for (std::int64_t tile = 0; tile < k_tiles; ++tile) {
      const std::int64_t word =
          as_in_memory ? tile / 4 * tensor.shape[1] + row : row * words + tile / 4;
      const auto byte = static_cast<std::size_t>(word * 4 + tile % 4);
      grid.values.push_back(decode[static_cast<std::uint8_t>(dense.view.bytes[byte])]);
    }
  return grid;
}

ScaleGrid read_blocked(std::string_view argument, const TensorView& tensor,
                       const std::optional<ScaleTiles>& named, std::int64_t rows,
                       std::int64_t columns) {
  const FormatId id = code_format(tensor);
  require(id != FormatId::f32, argument, "E8M0 or UE4M3 codes with a stated format (blocked_128x4)",
          to_string(tensor.type));
  const ScaleTiles tiles = tiles_of_layout(named, id == FormatId::e8m0fnu ? 32 : 16, rows, columns);
  const std::int64_t row_tiles = ceil_divide(rows, tiles.rows);
  const std::int64_t k_tiles = ceil_divide(columns, tiles.columns);
  const std::int64_t padded_rows = round_up(row_tiles, 128);
  const std::int64_t padded_tiles = round_up(k_tiles, 4);
  require(tensor.size() == padded_rows * padded_tiles, argument,
          fmt::format("{} x {} = {} codes for tiles of {}x{} (blocked_128x4)", padded_rows,
                      padded_tiles, padded_rows * padded_tiles, tiles.rows, tiles.columns),
          fmt::format("{}", shape_text(tensor.shape)));
  const std::vector<float> stored = values_of(argument, row_major(tensor).view);
  ScaleGrid grid{{}, tiles, id};
  grid.values.reserve(static_cast<std::size_t>(row_tiles * k_tiles));
  for (std::int64_t row = 0; row < row_tiles; ++row)
    for (std::int64_t tile = 0; tile < k_tiles; ++tile) {
      const std::int64_t at = blocked_128x4_position(k_tiles, row, tile);
      grid.values.push_back(stored[static_cast<std::size_t>(at)]);
    }
  return grid;
}

/// The scales with the signs of UE4M3 codes.
ScaleGrid read_with_signs(std::string_view argument, const TensorView& tensor, ScaleLayout layout,
                          const std::optional<ScaleTiles>& named, std::int64_t rows,
                          std::int64_t columns) {
  switch (layout) {
    case ScaleLayout::row_major:
      break;
    case ScaleLayout::column_major:
      return read_column_major(argument, tensor, named, rows, columns);
    case ScaleLayout::packed_ue8m0:
      return read_packed(argument, tensor, false, named, rows, columns);
    case ScaleLayout::packed_ue8m0_column_major:
      return read_packed(argument, tensor, true, named, rows, columns);
    case ScaleLayout::blocked_128x4:
      return read_blocked(argument, tensor, named, rows, columns);
  }
  std::vector<float> values = values_of(argument, tensor);
  return {std::move(values), checked_tiles(argument, tensor.shape, named, rows, columns),
          code_format(tensor)};
}

}  // namespace

std::int64_t blocked_128x4_position(std::int64_t k_tiles, std::int64_t row, std::int64_t tile) {
  const std::int64_t block = row / 128 * ceil_divide(k_tiles, std::int64_t{4}) + tile / 4;
  return block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + tile % 4;
}

std::span<const ScaleLayout> scale_layouts() { return kLayouts; }

std::string_view to_string(ScaleLayout layout) { return kNames[static_cast<std::size_t>(layout)]; }

ScaleLayout find_scale_layout(std::string_view name) {
  for (const ScaleLayout layout : kLayouts)
    if (to_string(layout) == name) return layout;
  throw Error("scale layout", fmt::format("one of {}", fmt::join(kNames, ", ")),
              fmt::format("'{}'", name));
}

ScaleGrid read_scales(std::string_view argument, const TensorView& tensor, ScaleLayout layout,
                      const std::optional<ScaleTiles>& named, std::int64_t rows,
                      std::int64_t columns) {
  ScaleGrid grid = read_with_signs(argument, tensor, layout, named, rows, columns);
  if (grid.format != FormatId::e4m3fn) return grid;
  if (std::ranges::any_of(grid.values, [](float x) { return std::signbit(x); }))
    grid.with_signs = grid.values;
  for (float& value : grid.values) value = std::abs(value);
  return grid;
}

}  // namespace fp8lab
