// Tiles that nobody names: every shape of scales over matrices of many sizes, against the list of
// tiles that are usual.

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

using Sides = std::pair<std::int64_t, std::int64_t>;

std::int64_t tiles_in(std::int64_t size, std::int64_t side) { return (size + side - 1) / side; }

/// Rows may have scales one by one; columns never do.
std::map<Sides, Sides> usual_grids(std::int64_t rows, std::int64_t columns) {
  std::map<Sides, Sides> tiles;  // by the shape of their grid
  for (const std::int64_t high :
       {rows, std::int64_t{1}, std::int64_t{16}, std::int64_t{32}, std::int64_t{128}})
    for (const std::int64_t wide :
         {columns, std::int64_t{16}, std::int64_t{32}, std::int64_t{128}}) {
      if (high > rows || wide > columns) continue;
      const auto [at, is_new] =
          tiles.insert({{tiles_in(rows, high), tiles_in(columns, wide)}, {high, wide}});
      CHECK((is_new || at->second == Sides{high, wide}));
    }
  return tiles;
}

std::string tiles_text(const Sides& tiles) {
  return fmt::format("{}x{}", tiles.first, tiles.second);
}

std::string found_tiles(const std::vector<std::int64_t>& shape, std::int64_t rows,
                        std::int64_t columns) {
  std::string text;
  const std::string refused = test::message_of(
      [&] {
        const ScaleTiles tiles = tiles_of_shape("scale", shape, rows, columns);
        text = tiles_text({tiles.rows, tiles.columns});
      },
      "");
  return refused.empty() ? text : refused;
}

}  // namespace

TEST_CASE("scale tiles: each shape has the usual tiles that make it, or is refused", "[product]") {
  const std::vector<std::int64_t> sizes{1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 127, 128, 129, 160};
  std::size_t refusals = 0;
  std::size_t turned = 0;
  std::map<std::string, int> wrong;
  for (const std::int64_t rows : sizes)
    for (const std::int64_t columns : sizes) {
      const std::map<Sides, Sides> usual = usual_grids(rows, columns);
      std::set<std::int64_t> high{1, 2, 3, 4, rows, columns, rows + 1, 0};
      std::set<std::int64_t> wide = high;
      for (const std::int64_t side : {2, 8, 16, 32, 64, 128}) {
        for (const std::int64_t more : {0, 1}) {
          high.insert(tiles_in(rows, side) + more);
          wide.insert(tiles_in(columns, side) + more);
        }
      }
      for (const std::int64_t r : high)
        for (const std::int64_t c : wide) {
          const std::string got = found_tiles({r, c}, rows, columns);
          const auto found = usual.find({r, c});
          const bool torch = r == 1 && c == rows && c > 1;
          std::string expected = fmt::format("scale: expected one value, [{}] or [", rows);
          if (torch) {
            ++turned;
            expected =
                fmt::format("scale: expected [{0}] or [{0}, 1] for one scale per row{1}", rows,
                            found == usual.end()
                                ? ", got [1, "
                                : fmt::format(", or named tiles (0x{})", found->second.second));
          } else if (found != usual.end()) {
            expected = tiles_text(found->second);
          } else {
            ++refusals;
          }
          const bool right =
              torch || found == usual.end() ? got.starts_with(expected) : got == expected;
          if (!right)
            ++wrong[fmt::format("[{}, {}] over [{}, {}]: expected {}, got {}", r, c, rows, columns,
                                expected, got)];
        }
      // A vector is one scale a row.
      for (const std::int64_t count : high) {
        const std::string got = found_tiles({count}, rows, columns);
        const auto found = usual.find({count, 1});
        const bool right = found == usual.end() ? got.ends_with(fmt::format("got [{}]", count))
                                                : got == tiles_text(found->second);
        if (!right) ++wrong[fmt::format("[{}]: {}", count, got)];
      }
    }
  INFO((wrong.empty() ? "" : wrong.begin()->first));
  CHECK(wrong.empty());
  CHECK(refusals > 5000);
  CHECK(turned > 100);
}

TEST_CASE("scale tiles: single columns have scales where their tiles are named", "[product]") {
  for (const std::int64_t rows : {1, 3, 20, 130})
    for (const std::int64_t columns : {2, 17, 40, 129}) {
      INFO(rows << " x " << columns);
      for (const std::int64_t high : {std::int64_t{0}, std::int64_t{1}, rows}) {
        const std::vector<std::int64_t> grid{high == 1 ? rows : 1, columns};
        CHECK(checked_tiles("scale", grid, ScaleTiles{high, 1}, rows, columns) ==
              ScaleTiles{high == 0 ? rows : high, 1});
        if (grid[0] == 1 && columns == rows) continue;
        CHECK(test::message_of([&] { (void)checked_tiles("scale", grid, {}, rows, columns); })
                  .ends_with(fmt::format("other tiles must be named, such as 64x64, got [{}, {}]",
                                         grid[0], columns)));
      }
    }
}
