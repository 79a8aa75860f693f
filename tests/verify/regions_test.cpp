#include "fp8lab/verify/regions.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("verify: a region is a copy only if all of its rows are", "[verify][regions]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {96, 160, 512}});
  const std::vector<float> golden = compute(random.product);
  // Rows 48 to 63 stand at rows 32 to 47: the first `together` from column 20 on, then 21.
  const auto content = [&](std::size_t together) {
    std::vector<float> d = golden;
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 32; ++j)
        d[(32 + i) * 160 + 100 + j] = golden[(48 + i) * 160 + (i < together ? 20 : 21) + j];
    const Operand got{"got", view_of(ElementType::f32, {96, 160}, std::span<const float>(d)),
                      nullptr};
    const VerifyReport report = verify(random.product, got);
    REQUIRE(report.regions.size() == 1);
    CHECK((report.regions[0].row == 32 && report.regions[0].rows == 16));
    CHECK((report.regions[0].column == 100 && report.regions[0].columns == 32));
    return report.regions[0].content;
  };
  CHECK(content(16) == RegionContent::elsewhere);
  for (const std::size_t together : {1u, 8u, 15u}) {
    INFO(together);
    CHECK(content(together) != RegionContent::elsewhere);
  }
}

TEST_CASE("power: a check has power if it detects one fault of each class", "[verify]") {
  // A check with a tolerance: of each class so many faults apply, and so many are detected.
  const auto has_power = [](std::size_t outputs, std::size_t operands) {
    PowerReport report;
    report.checks = {find_check("deepgemm")};
    const auto add = [&](FaultClass kind, bool applies, bool detected) {
      FaultOutcome& fault = report.faults.emplace_back();
      fault.kind = kind;
      fault.applies = applies;
      fault.detected = {detected};
    };
    for (std::size_t i = 0; i < 3; ++i) {
      add(FaultClass::output, true, i < outputs);
      add(FaultClass::operands, true, i < operands);
      add(FaultClass::operands, false, true);
    }
    return report.has_power(0);
  };
  CHECK(has_power(3, 3));
  CHECK(has_power(1, 1));
  CHECK_FALSE(has_power(0, 3));
  CHECK_FALSE(has_power(3, 0));
}

TEST_CASE("regions: four elements are one, eight regions are told and nine are not",
          "[verify][regions]") {
  constexpr std::int64_t kRows = 200;
  constexpr std::int64_t kColumns = 1200;
  std::vector<float> golden(kRows * kColumns);
  for (std::size_t i = 0; i < golden.size(); ++i) golden[i] = 1.0F + static_cast<float>(i);
  const auto bytes = [](const std::vector<float>& values) {
    const auto all = std::as_bytes(std::span(values));
    return std::vector<std::byte>(all.begin(), all.end());
  };
  const std::vector<std::byte> right = bytes(golden);
  const auto regions = [&](const std::vector<float>& got) {
    const std::vector<std::byte> codes = bytes(got);
    std::vector<std::int64_t> wrong;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != golden[i]) wrong.push_back(static_cast<std::int64_t>(i));
    return find_regions(FormatId::f32, right, codes, kRows, kColumns,
                        map_of(kRows, kColumns, wrong), WrongElements(FormatId::f32, right, codes));
  };
  const auto put = [&](std::vector<float>& got, std::int64_t row, std::int64_t column,
                       std::int64_t rows, std::int64_t columns, const auto& value) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        got[static_cast<std::size_t>((row + i) * kColumns + column + j)] = value(i, j);
  };
  const auto zero = [](std::int64_t, std::int64_t) { return 0.0F; };
  for (const std::int64_t columns : {3, 4}) {
    std::vector<float> got = golden;
    put(got, 7, 9, 1, columns, zero);
    CAPTURE(columns);
    CHECK(regions(got).size() == (columns == 4 ? 1 : 0));
  }
  for (const std::int64_t count : {8, 9}) {
    std::vector<float> got = golden;
    for (std::int64_t i = 0; i < count; ++i) put(got, 20, i * 130, 2, 3, zero);
    CAPTURE(count);
    CHECK(regions(got).size() == (count == 8 ? 8 : 0));
  }
  // Few elements of the last rows, and as few of all.
  for (const std::int64_t first : {160, 0}) {
    std::vector<float> got = golden;
    for (std::int64_t i = first * kColumns; i < kRows * kColumns; i += 7)
      got[static_cast<std::size_t>(i)] = -1.0F;
    const std::vector<Region> found = regions(got);
    CAPTURE(first);
    REQUIRE(found.size() == (first == 0 ? 0 : 1));
    if (first > 0) CHECK(place_of(found.front()) == "rows 160-199, columns 0-1199");
  }
  // Two that touch, of which one reaches further.
  std::vector<float> touching = golden;
  put(touching, 0, 1000, 160, 200, zero);
  put(touching, 160, 0, 40, 1200, [](std::int64_t, std::int64_t) { return 7.0F; });
  const std::vector<Region> both = regions(touching);
  REQUIRE(both.size() == 2);
  CHECK(describe(both[0]) == "rows 0-159, columns 1000-1199: all zero");
  CHECK(describe(both[1]) == "rows 160-199, columns 0-1199: one value everywhere");
  // Copies of what stands in the first and the last place where they fit.
  for (const auto& [from_row, from_column] :
       {std::pair<std::int64_t, std::int64_t>{0, 0}, {kRows - 5, kColumns - 6}}) {
    std::vector<float> got = golden;
    put(got, 50, 60, 5, 6, [&, row = from_row, column = from_column](auto i, auto j) {
      return golden[static_cast<std::size_t>((row + i) * kColumns + column + j)];
    });
    const std::vector<Region> found = regions(got);
    REQUIRE(found.size() == 1);
    CHECK(found[0].content == RegionContent::elsewhere);
    CHECK((found[0].from_row == from_row && found[0].from_column == from_column));
  }
}

TEST_CASE("regions: enough finite numbers are compared before they are called unrelated",
          "[verify][regions]") {
  const auto of = [](std::int64_t columns, std::int64_t infinite) {
    std::vector<float> golden;
    std::vector<float> got;
    for (std::int64_t i = 0; i < columns; ++i) {
      golden.push_back(static_cast<float>(i));
      // Neither rising nor falling; or the same numbers, of which some are infinite.
      const bool alternates = infinite == 0;
      got.push_back(alternates     ? (i % 2 == 0 ? 1.0F : -1.0F)
                    : i < infinite ? std::numeric_limits<float>::infinity()
                                   : static_cast<float>(i));
    }
    Region region;
    region.rows = 1;
    region.columns = columns;
    return unrelated(FormatId::f32, std::as_bytes(std::span(golden)), std::as_bytes(std::span(got)),
                     columns, region);
  };
  CHECK(of(256, 0));
  CHECK_FALSE(of(255, 0));
  CHECK_FALSE(of(300, 150));
  CHECK(of(300, 151));
}
