// Rectangles of every content at drawn places of outputs of several sizes: each is found where it
// was put, with its own content, and nothing else is.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/regions.hpp"

using namespace fp8lab;

namespace {

/// Codes [rows, columns] of binary32 or BF16.
struct AnyOutput {
  FormatId format;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::byte> codes;

  [[nodiscard]] std::size_t width() const {
    return static_cast<std::size_t>(fp8lab::format(format).storage_bits / 8);
  }
  [[nodiscard]] std::uint32_t at(std::int64_t row, std::int64_t column) const {
    return code_at(format, codes, static_cast<std::size_t>(row * columns + column));
  }
  void set(std::int64_t row, std::int64_t column, std::uint32_t code) {
    std::memcpy(&codes[static_cast<std::size_t>(row * columns + column) * width()], &code, width());
  }
};

/// Finite numbers from 1 to 256 of either sign, no two neighbours alike.
std::uint32_t any_number(FormatId id, const RandomStream& draws, std::uint64_t at) {
  const auto sign = static_cast<std::uint32_t>(draws.below(3 * at, 2));
  const auto exponent = static_cast<std::uint32_t>(127 + draws.below(3 * at + 1, 8));
  const auto mantissa = static_cast<std::uint32_t>(draws.below(3 * at + 2, 1U << 23));
  const std::uint32_t code = sign << 31 | exponent << 23 | mantissa;
  return id == FormatId::f32 ? code : code >> 16;
}

std::string text_of_region(const Region& r) {
  std::string text = fmt::format("[{}, {}) x [{}, {}): {} {}", r.row, r.row + r.rows, r.column,
                                 r.column + r.columns, r.mismatches, to_string(r.content));
  if (r.content == RegionContent::elsewhere)
    text += fmt::format(" from {}, {}", r.from_row, r.from_column);
  return text;
}

}  // namespace

TEST_CASE("regions: rectangles of every content are found where they are", "[verify]") {
  constexpr std::array kContents{RegionContent::other,     RegionContent::zeros,
                                 RegionContent::nan,       RegionContent::constant,
                                 RegionContent::elsewhere, RegionContent::transposed};
  std::array<int, 6> seen{};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomStream draws(seed, "any regions");
    std::uint64_t next = std::uint64_t{1} << 32;
    const auto pick = [&](std::int64_t count) {
      return static_cast<std::int64_t>(draws.below(next++, static_cast<std::uint64_t>(count)));
    };
    AnyOutput golden{
        pick(2) == 0 ? FormatId::f32 : FormatId::bf16, 20 + pick(80), 20 + pick(120), {}};
    const bool wide = golden.format == FormatId::f32;
    golden.codes.resize(static_cast<std::size_t>(golden.rows * golden.columns) * golden.width());
    for (std::int64_t i = 0; i < golden.rows * golden.columns; ++i)
      golden.set(i / golden.columns, i % golden.columns,
                 any_number(golden.format, draws, static_cast<std::uint64_t>(i)));
    AnyOutput got = golden;
    const MismatchMap tiles = make_map(golden.rows, golden.columns);
    // Each in a column of its own, a whole tile and more between two.
    std::vector<std::pair<std::int64_t, std::string>> expected;  // by the first tile
    std::int64_t left = pick(3);
    while (expected.size() < 8) {
      Region r;
      r.rows = 2 + pick(std::min<std::int64_t>(12, golden.rows / 2));
      r.columns = 2 + pick(7);
      r.content = kContents[static_cast<std::size_t>(pick(6))];
      if (r.content == RegionContent::transposed) r.columns = r.rows = 2 + pick(6);
      r.row = pick(golden.rows - r.rows + 1);
      r.column = left;
      left = (r.column + r.columns - 1) / tiles.tile_columns * tiles.tile_columns +
             2 * tiles.tile_columns + pick(3);
      if (r.column + r.columns > golden.columns) break;
      r.from_row = pick(golden.rows - r.rows + 1);
      r.from_column = pick(golden.columns - r.columns + 1);
      if (r.content == RegionContent::elsewhere && r.from_row == r.row && r.from_column == r.column)
        r.from_row = r.row == 0 ? 1 : r.row - 1;
      const std::uint32_t same = any_number(golden.format, draws, next++);
      for (std::int64_t i = 0; i < r.rows; ++i)
        for (std::int64_t j = 0; j < r.columns; ++j) {
          const auto number = static_cast<std::uint32_t>(i * r.columns + j);
          std::uint32_t code = 0;
          switch (r.content) {
            case RegionContent::zeros:
              code = number % 2 == 0 ? 0 : fp8lab::format(golden.format).sign_mask();
              break;
            case RegionContent::nan:
              code = (wide ? 0x7f800001U : 0x7f81U) + number % 64;
              break;
            case RegionContent::constant:
              code = same;
              break;
            case RegionContent::elsewhere:
              code = golden.at(r.from_row + i, r.from_column + j);
              break;
            case RegionContent::transposed:
              code = golden.at(r.row + j, r.column + i);
              break;
            default:
              // Some are right, but not at the corners.
              code = any_number(golden.format, draws, next++);
              if (number % 3 == 1 && i > 0 && i + 1 < r.rows && j > 0 && j + 1 < r.columns)
                code = golden.at(r.row + i, r.column + j);
          }
          r.mismatches += code != golden.at(r.row + i, r.column + j) ? 1U : 0U;
          got.set(r.row + i, r.column + j, code);
        }
      // A number that is right by chance may have made it smaller.
      bool edges = true;
      for (std::int64_t i = 0; i < r.rows; ++i)
        for (std::int64_t j = 0; j < r.columns; ++j)
          if ((i == 0 || j == 0 || i + 1 == r.rows || j + 1 == r.columns) &&
              r.content != RegionContent::transposed)
            edges = edges && got.at(r.row + i, r.column + j) != golden.at(r.row + i, r.column + j);
      if (r.content == RegionContent::transposed && r.rows > 1)
        edges = r.rows == 2 || r.mismatches == static_cast<std::uint64_t>(r.rows * (r.rows - 1));
      if (r.mismatches < 4 || 2 * r.mismatches < r.size()) edges = false;
      if (!edges) {
        for (std::int64_t i = 0; i < r.rows; ++i)
          for (std::int64_t j = 0; j < r.columns; ++j)
            got.set(r.row + i, r.column + j, golden.at(r.row + i, r.column + j));
        continue;
      }
      const std::int64_t tile =
          r.row / tiles.tile_rows * tiles.columns + r.column / tiles.tile_columns;
      expected.emplace_back(tile, text_of_region(r));
      ++seen[static_cast<std::size_t>(std::find(kContents.begin(), kContents.end(), r.content) -
                                      kContents.begin())];
    }
    if (expected.empty()) continue;
    std::sort(expected.begin(), expected.end());
    MismatchMap map = tiles;
    const CodeComparison compared =
        compare_codes(fp8lab::format(golden.format), golden.codes, got.codes, {.map = &map});
    CHECK(!compared.bitwise());
    std::vector<std::int64_t> listed;
    for (std::int64_t i = 0; i < golden.rows * golden.columns; ++i)
      if (got.at(i / golden.columns, i % golden.columns) !=
          golden.at(i / golden.columns, i % golden.columns))
        listed.push_back(i);
    CHECK(map_of(golden.rows, golden.columns, listed).counts == map.counts);
    std::string want;
    for (const auto& [tile, text] : expected) want += text + "\n";
    for (const bool by_list : {false, true}) {
      std::string found;
      for (const Region& r :
           find_regions(golden.format, golden.codes, got.codes, golden.rows, golden.columns, map,
                        by_list ? WrongElements(listed)
                                : WrongElements(golden.format, golden.codes, got.codes)))
        found += text_of_region(r) + "\n";
      INFO("seed " << seed << ": " << golden.rows << " x " << golden.columns << ", tiles "
                   << map.tile_rows << " x " << map.tile_columns << ", listed " << by_list);
      CHECK(found == want);
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    INFO(to_string(kContents[i]));
    CHECK(seen[i] >= 5);
  }
}

TEST_CASE("elements are wrong where their bits differ, but for two NaNs", "[verify]") {
  const std::vector<std::uint8_t> codes{0x00, 0x80, 0x01, 0x38, 0x7b, 0x7c, 0xfc, 0x7d, 0x7f, 0xfe};
  const auto is_nan = [](std::uint8_t code) { return (code & 0x7fU) > 0x7cU; };
  for (const std::uint8_t right : codes)
    for (const std::uint8_t got : codes) {
      const std::array<std::byte, 2> golden{std::byte{right}, std::byte{right}};
      const std::array<std::byte, 2> output{std::byte{right}, std::byte{got}};
      const WrongElements wrong(FormatId::e5m2, golden, output);
      INFO(fmt::format("{:#04x} for {:#04x}", got, right));
      CHECK_FALSE(wrong.at(0));
      CHECK(wrong.at(1) == (got != right && !(is_nan(got) && is_nan(right))));
    }
}
