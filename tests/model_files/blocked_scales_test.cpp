#include "training/model_files/blocked_scales.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

using Shape = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("scales in blocks of 128 x 4", "[model_files]") {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kColumns = 5;
  std::vector<std::uint8_t> scales(kRows * kColumns);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i % 251);
  const auto blocked = to_blocked(scales, kRows, kColumns);
  REQUIRE(blocked_shape(kRows, kColumns) == Shape{64, 32});
  REQUIRE(blocked.size() == 64 * 32);
  CHECK(blocked[16] == scales[1 * kColumns]);           // row 1
  CHECK(blocked[4] == scales[32 * kColumns]);           // row 32
  CHECK(blocked[3] == scales[3]);                       // column 3
  CHECK(blocked[512] == scales[4]);                     // the next block across
  CHECK(blocked[513] == 0);                             // past the last column
  CHECK(blocked[1024 + 16] == scales[129 * kColumns]);  // the next block down
  CHECK(from_blocked(blocked, kRows, kColumns) == scales);
  CHECK_THROWS_AS(to_blocked(scales, kRows, 6), Error);
  CHECK_THROWS_AS(from_blocked(scales, kRows, kColumns), Error);
}

TEST_CASE("scales in blocks of 128 x 4 of any size, each by its own place", "[model_files]") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {127, 3}, {128, 4}, {129, 5}, {31, 9}, {257, 13}, {300, 8}}) {
    INFO(rows << " x " << columns);
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<std::uint8_t>(1 + i % 253);
    const std::int64_t down = (rows + 127) / 128;
    const std::int64_t across = (columns + 3) / 4;
    CHECK(blocked_shape(rows, columns) == Shape{32 * down, 16 * across});
    // Blocks in row-major order; in a block 32 rows of four times four scales.
    std::vector<std::uint8_t> expected;
    for (std::int64_t block = 0; block < down * across; ++block)
      for (std::int64_t inner = 0; inner < 32; ++inner)
        for (std::int64_t quarter = 0; quarter < 4; ++quarter)
          for (std::int64_t c = 0; c < 4; ++c) {
            const std::int64_t row = block / across * 128 + 32 * quarter + inner;
            const std::int64_t column = block % across * 4 + c;
            const bool inside = row < rows && column < columns;
            expected.push_back(inside ? scales[static_cast<std::size_t>(row * columns + column)]
                                      : std::uint8_t{0});
          }
    CHECK((to_blocked(scales, rows, columns) == expected));
    CHECK((from_blocked(expected, rows, columns) == scales));
    CHECK_THROWS_WITH(
        to_blocked(scales, rows, columns + 1),
        fmt::format("scales: expected {}, got {}", rows * (columns + 1), rows * columns));
    CHECK_THROWS_WITH(
        from_blocked(std::span(expected).subspan(1), rows, columns),
        fmt::format("scales: expected {}, got {}", expected.size(), expected.size() - 1));
    std::vector<std::uint8_t> longer = expected;
    longer.push_back(0);
    CHECK_THROWS_WITH(
        from_blocked(longer, rows, columns),
        fmt::format("scales: expected {}, got {}", expected.size(), expected.size() + 1));
  }
}
