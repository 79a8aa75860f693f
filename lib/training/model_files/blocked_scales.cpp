#include "training/model_files/blocked_scales.hpp"

#include <fmt/format.h>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kRows = 128;
constexpr std::int64_t kColumns = 4;

std::size_t blocked_place(std::int64_t row, std::int64_t column, std::int64_t block_columns) {
  const std::int64_t block = row / kRows * block_columns + column / kColumns;
  const std::int64_t within = row % 32 * 16 + row % kRows / 32 * kColumns + column % kColumns;
  return static_cast<std::size_t>(block * kRows * kColumns + within);
}

void require_count(std::size_t count, std::int64_t expected) {
  require(static_cast<std::int64_t>(count) == expected, "scales", fmt::format("{}", expected),
          fmt::format("{}", count));
}

}  // namespace

std::vector<std::int64_t> blocked_shape(std::int64_t rows, std::int64_t columns) {
  return {32 * ceil_divide(rows, kRows), 16 * ceil_divide(columns, kColumns)};
}

std::vector<std::uint8_t> to_blocked(std::span<const std::uint8_t> scales, std::int64_t rows,
                                     std::int64_t columns) {
  require_count(scales.size(), rows * columns);
  const std::vector<std::int64_t> shape = blocked_shape(rows, columns);
  std::vector<std::uint8_t> blocked(static_cast<std::size_t>(shape[0] * shape[1]));
  const std::int64_t across = ceil_divide(columns, kColumns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      blocked[blocked_place(r, c, across)] = scales[static_cast<std::size_t>(r * columns + c)];
  return blocked;
}

std::vector<std::uint8_t> from_blocked(std::span<const std::uint8_t> blocked, std::int64_t rows,
                                       std::int64_t columns) {
  const std::vector<std::int64_t> shape = blocked_shape(rows, columns);
  require_count(blocked.size(), shape[0] * shape[1]);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(rows * columns));
  const std::int64_t across = ceil_divide(columns, kColumns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      scales[static_cast<std::size_t>(r * columns + c)] = blocked[blocked_place(r, c, across)];
  return scales;
}

}  // namespace fp8lab
