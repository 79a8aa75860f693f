// Right values in wrong places: which lines and tiles are tried, how many may come from nowhere,
// and what each explains, counted.

#include "fp8lab/verify/misplaced.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/regions.hpp"

using namespace fp8lab;

namespace {

using PlacedValues = std::vector<float>;

struct PlacedOutput {
  std::int64_t rows;
  std::int64_t columns;
  PlacedValues golden;
  PlacedValues got;

  PlacedOutput(std::int64_t high, std::int64_t wide) : rows(high), columns(wide) {
    for (std::int64_t i = 0; i < rows * columns; ++i)
      golden.push_back(1.0F + static_cast<float>(i));
    got = golden;
  }
  [[nodiscard]] float& at(PlacedValues& values, std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  void row_becomes(std::int64_t row, std::int64_t from) {
    for (std::int64_t j = 0; j < columns; ++j) at(got, row, j) = at(golden, from, j);
  }
  void garbage_row(std::int64_t row) {
    for (std::int64_t j = 0; j < columns; ++j)
      at(got, row, j) = -0.5F - static_cast<float>(row * columns + j);
  }

  [[nodiscard]] Diagnosis diagnosis() const {
    Sample all{std::vector<std::int64_t>(static_cast<std::size_t>(rows)),
               std::vector<std::int64_t>(static_cast<std::size_t>(columns))};
    std::iota(all.rows.begin(), all.rows.end(), 0);
    std::iota(all.columns.begin(), all.columns.end(), 0);
    const auto bytes = [](const PlacedValues& x) { return std::as_bytes(std::span(x)); };
    Judge judge({}, code_words(FormatId::f32, bytes(golden)),
                code_words(FormatId::f32, bytes(got)));
    try_misplacements({FormatId::f32, rows, columns, bytes(golden), bytes(got)}, all, judge);
    return judge.finish();
  }
  /// `name explained/contradicted` of every cause.
  [[nodiscard]] std::string causes() const {
    std::string text;
    for (const Cause& one : diagnosis().causes)
      text += fmt::format("{} {}/{}; ", one.name, one.explained, one.contradicted);
    return text;
  }
};

}  // namespace

TEST_CASE("misplaced: what is tried of each shape of output", "[verify]") {
  constexpr std::array<std::array<std::int64_t, 2>, 6> kTried{
      {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}}};
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {1, 2},
                                      {2, 1},
                                      {2, 2},
                                      {1, 300},
                                      {300, 1},
                                      {64, 64},
                                      {64, 65},
                                      {65, 64},
                                      {63, 300},
                                      {300, 63},
                                      {128, 64},
                                      {64, 128},
                                      {127, 129},
                                      {128, 128},
                                      {256, 128},
                                      {128, 256},
                                      {129, 257}}) {
    std::uint64_t expected = rows >= 2 && columns >= 2 ? 1 : 0;
    expected += rows > 1 ? 1 : 0;
    expected += columns > 1 ? 1 : 0;
    for (const auto& [high, wide] : kTried)
      if (high <= rows && wide <= columns && (high < rows || wide < columns)) ++expected;
    PlacedOutput output(rows, columns);
    output.got[0] = -1.0F;
    INFO(rows << " x " << columns);
    CHECK(output.diagnosis().tried == expected);
  }
}

TEST_CASE("misplaced: lines from nowhere are two, and as many as moved before them", "[verify]") {
  // All rows one further on, behind `lost` rows that hold anything.
  const auto shifted = [](std::int64_t lost, std::int64_t by) {
    PlacedOutput output(100, 3);
    for (std::int64_t row = 99; row >= by; --row) output.row_becomes(row, row - by);
    for (std::int64_t row = 0; row < lost; ++row) output.garbage_row(row);
    return output.causes();
  };
  CHECK(shifted(1, 1) == "rows_shifted_1 300/0; ");
  CHECK(shifted(2, 2) == "rows_shifted_2 300/0; ");
  // The second row belongs inside, and is not explained.
  CHECK(shifted(2, 1) == "rows_shifted_1 297/0; ");
  CHECK(shifted(3, 3) == "");
  CHECK(shifted(3, 1) == "");
  // Behind rows that moved more may be lost: those at the end of a shift from below.
  for (const std::int64_t by : {1, 2, 4}) {
    PlacedOutput output(100, 3);
    for (std::int64_t row = 0; row < 100 - by; ++row) output.row_becomes(row, row + by);
    for (std::int64_t row = 100 - by; row < 100; ++row) output.garbage_row(row);
    CHECK(output.causes() == fmt::format("rows_shifted_-{} 300/0; ", by));
  }
}

TEST_CASE("misplaced: outputs in the other memory order, and columns further on", "[verify]") {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{2, 3}, {3, 2}, {5, 4}, {7, 19}}) {
    PlacedOutput output(rows, columns);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        output.at(output.got, row, column) =
            output.golden[static_cast<std::size_t>(column * rows + row)];
        wrong += column * rows + row != row * columns + column ? 1 : 0;
      }
    INFO(rows << " x " << columns);
    CHECK(output.causes() == fmt::format("transposed_output {}/0; ", wrong));
  }
  // What is at the end came from outside.
  for (const std::int64_t columns : {30, 47})
    for (const std::int64_t by : {-2, -1, 1, 2}) {
      PlacedOutput output(3, columns);
      for (std::int64_t row = 0; row < 3; ++row)
        for (std::int64_t column = 0; column < columns; ++column) {
          const std::int64_t from = column - by;
          output.at(output.got, row, column) =
              from >= 0 && from < columns ? output.at(output.golden, row, from)
                                          : -0.5F - static_cast<float>(row * columns + column);
        }
      INFO(columns << " columns, " << by << " further on");
      CHECK(output.causes() == fmt::format("columns_shifted_{} {}/0; ", by, 3 * columns));
    }
}

TEST_CASE("misplaced: whole tiles are exchanged beside others that are cut off", "[verify]") {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{128, 200}, {135, 192}})
    for (const auto& [row, column] :
         {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 0}, {1, 2}}) {
      PlacedOutput output(rows, columns);
      for (std::int64_t i = 0; i < 64; ++i)
        for (std::int64_t j = 0; j < 64; ++j) {
          output.at(output.got, i, j) = output.at(output.golden, row * 64 + i, column * 64 + j);
          output.at(output.got, row * 64 + i, column * 64 + j) = output.at(output.golden, i, j);
        }
      INFO(rows << " x " << columns << ", tile " << row << ", " << column);
      CHECK(output.causes() == "tiles_64x64_exchanged 8192/0; ");
    }
}

TEST_CASE("misplaced: lines that are right stay where they are, though others are alike",
          "[verify]") {
  PlacedOutput output(40, 5);
  for (std::int64_t j = 0; j < 5; ++j)
    output.at(output.golden, 20, j) = output.at(output.golden, 15, j);
  output.got = output.golden;
  output.row_becomes(3, 2);
  output.row_becomes(9, 8);
  CHECK(output.causes() == "rows_shifted_1 10/0; ");
  output.row_becomes(2, 3);
  CHECK(output.causes() == "rows_exchanged 15/0; ");
}

TEST_CASE("misplaced: tiles that moved by one distance are no copies of right ones", "[verify]") {
  // Tiles 1 and 3 of five hold those before them, which are right; then tile 0 holds the third.
  const auto tiles = [](const std::vector<std::pair<std::int64_t, std::int64_t>>& moves) {
    PlacedOutput output(64, 320);
    for (const auto& [to, from] : moves)
      for (std::int64_t i = 0; i < 64; ++i)
        for (std::int64_t j = 0; j < 64; ++j)
          output.at(output.got, i, to * 64 + j) = output.at(output.golden, i, from * 64 + j);
    std::string names;
    for (const Cause& one : output.diagnosis().causes)
      if (one.name.starts_with("tiles"))
        names += fmt::format("{} {}/{}; ", one.name, one.explained, one.contradicted);
    return names;
  };
  CHECK(tiles({{1, 0}, {3, 2}}) == "");
  CHECK(tiles({{1, 0}, {2, 1}}) == "tiles_64x64_exchanged 8192/0; ");
  CHECK(tiles({{1, 0}, {2, 1}, {3, 2}, {4, 3}}) == "tiles_64x64_exchanged 16384/0; ");
  CHECK(tiles({{0, 4}, {4, 0}}) == "tiles_64x64_exchanged 8192/0; ");
  CHECK(tiles({{1, 0}}) == "");
}

TEST_CASE("misplaced: lines are sought as long as 2^24 comparisons last", "[verify]") {
  for (const auto& [count, found] : {std::pair<std::int64_t, bool>{5600, true}, {6100, false}}) {
    PlacedOutput output(count, 1);
    std::reverse(output.got.begin(), output.got.end());
    INFO(count);
    const std::string causes = output.causes();
    CHECK(causes == (found ? fmt::format("rows_exchanged {}/0; ", count) : ""));
  }
}

TEST_CASE("regions: one element alone that is a step off is one, and no others are",
          "[verify][regions]") {
  const auto said = [](const std::vector<std::pair<std::int64_t, std::uint32_t>>& steps) {
    PlacedOutput output(20, 30);
    std::vector<std::int64_t> wrong;
    for (const auto& [at, by] : steps) {
      float& x = output.got[static_cast<std::size_t>(at)];
      x = std::nextafter(x, 1e9F);
      for (std::uint32_t more = 1; more < by; ++more) x = std::nextafter(x, 1e9F);
      wrong.push_back(at);
    }
    const auto bytes = [](const PlacedValues& x) { return std::as_bytes(std::span(x)); };
    std::string text;
    for (const Region& one : find_regions(FormatId::f32, bytes(output.golden), bytes(output.got),
                                          20, 30, map_of(20, 30, wrong), WrongElements(wrong)))
      text += describe(one) + "; ";
    return text;
  };
  CHECK(said({{65, 1}}) == "row 2, column 5: one ulp off, alone; ");
  CHECK(said({{0, 1}}) == "row 0, column 0: one ulp off, alone; ");
  CHECK(said({{599, 1}}) == "row 19, column 29: one ulp off, alone; ");
  CHECK(said({{65, 2}}) == "");
  CHECK(said({{65, 1}, {400, 1}}) == "");
  CHECK(said({{65, 1}, {66, 1}}) == "");
}

TEST_CASE("regions: numbers are unrelated below a quarter of correlation", "[verify][regions]") {
  // Two patterns of ones that do not go together at all, and shares of each.
  const auto of = [](double share, double mean) {
    PlacedValues golden;
    PlacedValues got;
    for (int i = 0; i < 1024; ++i) {
      const double x = (i & 1) != 0 ? 1.0 : -1.0;
      const double z = (i & 2) != 0 ? 1.0 : -1.0;
      golden.push_back(static_cast<float>(x + mean));
      got.push_back(static_cast<float>(share * x + std::sqrt(1.0 - share * share) * z - mean));
    }
    Region region;
    region.rows = 16;
    region.columns = 64;
    return unrelated(FormatId::f32, std::as_bytes(std::span(golden)), std::as_bytes(std::span(got)),
                     64, region);
  };
  for (const double mean : {0.0, 3.0})
    for (const double sign : {-1.0, 1.0}) {
      INFO(sign << ", mean " << mean);
      CHECK(of(0.0, mean));
      CHECK(of(sign * 0.2, mean));
      CHECK(of(sign * 0.249, mean));
      CHECK_FALSE(of(sign * 0.251, mean));
      CHECK_FALSE(of(sign * 0.4, mean));
    }
}
