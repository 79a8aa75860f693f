#include "fp8lab/verify/explain.hpp"

#include <bit>
#include <cmath>
#include <functional>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "product/products.hpp"
#include "product/scaled_units.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("explain: a budget's diagnosis looks at what is outside of it", "[verify]") {
  // All outputs are off by one step, which the budget allows; one in row 21 is 25 % too large.
  constexpr std::int64_t kRows = 48;
  constexpr std::int64_t kColumns = 40;
  constexpr std::size_t kOutside = 21 * kColumns + 17;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kRows, kColumns, 512}});
  std::vector<float> values = decode_codes(FormatId::f32, golden_output(random.product));
  for (float& x : values) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + 1);
  values[kOutside] *= 1.25F;
  const std::vector<std::byte> codes = cast_output(values, {});
  const Operand got{"got", {ElementType::f32, {kRows, kColumns}, codes}, nullptr};

  const VerifyReport budget = verify(random.product, got, {.check = find_check("budget")});
  INFO(describe(budget));
  REQUIRE(budget.verdict == Verdict::mismatch);
  REQUIRE(budget.budget);
  CHECK(budget.budget->outside == std::vector<std::int64_t>{kOutside});
  REQUIRE(budget.diagnosis);
  CHECK(budget.diagnosis->mismatches == 1);
  CHECK(budget.diagnosis->right == 5 * kColumns - 1);  // of row 21 and four others

  const VerifyReport bits = verify(random.product, got);
  REQUIRE(bits.diagnosis);
  CHECK(bits.diagnosis->right == 0);
  CHECK(bits.diagnosis->mismatches > 10 * kColumns);
}

TEST_CASE("explain: numbers that go with the right ones, of either sign, are no garbage",
          "[verify]") {
  constexpr std::int64_t kSize = 128;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kSize, kSize, 256}});
  const std::vector<float> right = decode_codes(FormatId::f32, golden_output(random.product));
  double squares = 0.0;
  for (const float x : right) squares += static_cast<double>(x) * static_cast<double>(x);
  const auto size = static_cast<float>(std::sqrt(squares / static_cast<double>(right.size())));
  const RandomStream stream(5, "garbage");
  // What a tile of 48 x 64 holds in place of x, by a number from 0 to 1.
  const auto content = [&](const std::function<float(float, float)>& of) {
    std::vector<float> values = right;
    for (std::int64_t i = 32; i < 80; ++i)
      for (std::int64_t j = 40; j < 104; ++j) {
        const auto at = static_cast<std::size_t>(i * kSize + j);
        values[at] = of(right[at], static_cast<float>(stream.uniform(at)));
      }
    const std::vector<std::byte> codes = cast_output(values, {});
    const VerifyReport report =
        verify(random.product, {"got", {ElementType::f32, {kSize, kSize}, codes}, nullptr});
    INFO(describe(report));
    REQUIRE(report.regions.size() == 1);
    return report.regions.front().content;
  };
  const auto noise = [&](float u) { return 4.0F * size * (u - 0.5F); };
  CHECK(content([](float x, float u) { return x * (0.5F + 1.5F * u); }) == RegionContent::other);
  CHECK(content([](float x, float u) { return -x * (0.5F + 1.5F * u); }) == RegionContent::other);
  CHECK(content([&](float x, float u) { return x + noise(u); }) == RegionContent::other);
  CHECK(content([&](float x, float u) { return noise(u) - x; }) == RegionContent::other);
  CHECK(content([&](float, float u) { return noise(u); }) == RegionContent::unrelated);
  // Means do not make numbers go together.
  CHECK(content([&](float, float u) { return 100.0F * size + noise(u); }) ==
        RegionContent::unrelated);
}

TEST_CASE(
    "explain: a region's right values in wrong places are found, beside a budget as other codes",
    "[verify][regions]") {
  constexpr std::int64_t kHigh = 192;
  constexpr std::int64_t kWide = 320;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kHigh, kWide, 128}});
  const std::vector<float> right = compute(random.product);
  // What is said of all regions where rows [row, row + rows) and columns [column, column + columns)
  // hold what belongs `down` further down and `along` further along, as do those for them.
  struct Exchange {
    std::int64_t row, rows, column, columns, down, along;
  };
  const auto said = [&](const Exchange& e, const char* check) {
    std::vector<float> values = right;
    for (std::int64_t i = e.row; i < e.row + e.rows; ++i)
      for (std::int64_t j = e.column; j < e.column + e.columns; ++j) {
        const auto here = static_cast<std::size_t>(i * kWide + j);
        const auto there = static_cast<std::size_t>((i + e.down) * kWide + j + e.along);
        values[here] = right[there];
        values[there] = right[here];
      }
    const std::vector<std::byte> codes = cast_output(values, {});
    const VerifyReport report =
        verify(random.product, {"got", {ElementType::f32, {kHigh, kWide}, codes}, nullptr},
               {.check = find_check(check), .judge_power = false});
    std::string text;
    for (const Region& region : report.regions) text += describe(region) + "\n";
    return text;
  };
  const std::string tiles =
      "differ; cause: tiles_64x64_exchanged: tiles of 64 x 64 hold the right values of other "
      "outputs (1024 of 1024 sampled)\n";
  const Exchange side_by_side{64, 64, 128, 64, 0, 64};
  CHECK(said(side_by_side, "bitwise") == "rows 64-127, columns 128-255: 8192 of 8192 " + tiles);
  CHECK(said({0, 64, 192, 64, 64, 0}, "deepgemm") ==
        "rows 0-127, columns 192-255: 8192 of 8192 " + tiles);
  CHECK(said({10, 2, 0, kWide, 2, 0}, "bitwise") ==
        "rows 10-13, columns 0-319: 1280 of 1280 differ; cause: rows_exchanged: rows hold the "
        "right values of other outputs (256 of 256 sampled)\n");
  CHECK(said({0, kHigh, 200, 3, 0, 3}, "bitwise") ==
        "rows 0-191, columns 200-205: 1152 of 1152 differ; cause: columns_exchanged: columns hold "
        "the right values of other outputs (96 of 96 sampled)\n");
  CHECK(said(side_by_side, "budget") ==
        "rows 64-127, columns 128-255: 6170 of 8192 differ; cause: codes_of_other_row_b: B's codes "
        "(measured): row i has those of row i xor 64, under its own scales (1022 of 1022 "
        "sampled)\n");
}

namespace {

/// A [48, 512] and B [48, 512] of a recipe, N(0, 1) in rows of very different sizes.
Product product_of_two(const ScaledUnit& unit) {
  constexpr std::int64_t kRows = 48;
  constexpr std::int64_t kTerms = 512;
  const auto values = [](const char* name) {
    const RandomStream draws(5, name);
    std::vector<float> all;
    for (std::int64_t i = 0; i < kRows * kTerms; ++i)
      all.push_back(static_cast<float>(std::ldexp(
          draws.normal(static_cast<std::uint64_t>(i)),
          static_cast<int>(draws.below(static_cast<std::uint64_t>(i / kTerms), 9)) - 4)));
    return all;
  };
  const std::vector<float> a = values("a");
  const std::vector<float> b = values("b");
  Product product = product_of(unit, {a, kRows, kTerms});
  const Product other = product_of(unit, {b, kRows, kTerms});
  product.problem.b = other.problem.b;
  product.problem.scale_b = other.problem.scale_b;
  product.owners.insert(product.owners.end(), other.owners.begin(), other.owners.end());
  return product;
}

/// What is said of an output whose rows are doubled where `is_wrong`.
VerifyReport with_doubled_rows(const Product& product,
                               const std::function<bool(std::int64_t)>& is_wrong) {
  std::vector<float> values = decode_codes(FormatId::f32, golden_output(product));
  const std::int64_t n = product.columns();
  for (std::size_t at = 0; at < values.size(); ++at)
    if (is_wrong(static_cast<std::int64_t>(at) / n)) values[at] *= 2.0F;
  const std::vector<std::byte> codes = cast_output(values, {});
  return verify(product, {"got", {ElementType::f32, {product.rows(), n}, codes}, nullptr},
                {.judge_power = false});
}

}  // namespace

TEST_CASE("explain: a factor on some rows is not taken for scales from other places", "[verify]") {
  for (const ScaledUnit& unit : kScaledUnits) {
    const Product product = product_of_two(unit);
    INFO(unit.preset);
    const VerifyReport together =
        with_doubled_rows(product, [](std::int64_t row) { return row / 16 == 1; });
    REQUIRE(together.diagnosis);
    REQUIRE(!together.diagnosis->causes.empty());
    const Cause& region = together.diagnosis->causes.front();
    INFO(region.name << ": " << region.text);
    CHECK(!region.vague);
    CHECK(region.text.starts_with("in rows 16-31, columns 0-47: "));
    CHECK(region.explained == together.diagnosis->mismatches);
    CHECK(region.contradicted == 0);

    const VerifyReport apart =
        with_doubled_rows(product, [](std::int64_t row) { return row % 4 == 1; });
    REQUIRE(apart.diagnosis);
    REQUIRE(!apart.diagnosis->causes.empty());
    const Cause& lines = apart.diagnosis->causes.front();
    INFO(lines.name << ": " << lines.text);
    CHECK(!lines.vague);
    CHECK(lines.text.starts_with("in 12 rows with i mod 4 in 1-1: "));
    CHECK(lines.name == region.name);
  }
}

TEST_CASE("explain: negated columns are no garbage, and are told", "[verify]") {
  constexpr std::int64_t kRows = 96;
  constexpr std::int64_t kColumns = 80;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kRows, kColumns, 512}});
  std::vector<float> values = decode_codes(FormatId::f32, golden_output(random.product));
  for (std::size_t at = 1; at < values.size(); at += 2) values[at] = -values[at];
  const std::vector<std::byte> codes = cast_output(values, {});
  const VerifyReport report =
      verify(random.product, {"got", {ElementType::f32, {kRows, kColumns}, codes}, nullptr},
             {.judge_power = false});
  INFO(describe(report));
  for (const Region& region : report.regions) CHECK(region.content == RegionContent::other);
  REQUIRE(report.diagnosis);
  REQUIRE(!report.diagnosis->causes.empty());
  CHECK(report.diagnosis->causes.front().text.starts_with("in 40 columns with i mod 2 in 1-1: "));
}

TEST_CASE("explain: what was added to all outputs, to columns or to rows is measured", "[verify]") {
  constexpr std::int64_t kRows = 96;
  constexpr std::int64_t kColumns = 80;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kRows, kColumns, 512}});
  const std::vector<float> right = decode_codes(FormatId::f32, golden_output(random.product));
  const RandomStream draws(3, "added");
  const auto cause = [&](const std::function<double(std::uint64_t, std::uint64_t)>& added) {
    std::vector<float> values = right;
    for (std::size_t at = 0; at < values.size(); ++at)
      values[at] += static_cast<float>(added(at / kColumns, at % kColumns));
    const std::vector<std::byte> codes = cast_output(values, {});
    const VerifyReport report =
        verify(random.product, {"got", {ElementType::f32, {kRows, kColumns}, codes}, nullptr},
               {.judge_power = false});
    return report.diagnosis->causes.empty() ? "none: " + describe(report)
                                            : report.diagnosis->causes.front().name;
  };
  CHECK(cause([](auto, auto) { return 7.0; }) == "number_added");
  CHECK(cause([&](auto, auto column) { return 20.0 * draws.normal(column); }) == "bias_added");
  CHECK(cause([&](auto row, auto) { return 20.0 * draws.normal(row); }) == "number_added_to_rows");
  // A number for each output is neither.
  CHECK(cause([&](auto row, auto column) {
          return 20.0 * draws.normal(100 * row + column);
        }).starts_with("none: "));
}
