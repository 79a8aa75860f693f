// Scales of wrong products, value by value, for operands of which no two sizes are alike.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "product/ones.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using ScaleValues = std::vector<float>;

/// A [6, 96] with tiles of 2 x 32 and B [5, 96] with tiles of 1 x 32, of either or both.
struct UnlikeScales {
  ScaleValues of_a;
  ScaleValues of_b;
  Product product;

  UnlikeScales(bool a, bool b) {
    for (int i = 0; i < 9; ++i) of_a.push_back(1.25F + static_cast<float>(i));
    for (int i = 0; i < 15; ++i) of_b.push_back(0.3F * static_cast<float>(i + 1));
    GemmOperands operands;
    operands.a.codes = codes({6, 96});
    operands.b.codes = codes({5, 96});
    if (a) operands.a.scales = view_of(ElementType::f32, {3, 3}, std::span<const float>(of_a));
    if (a) operands.a.tiles = ScaleTiles{2, 32};
    if (b) operands.b.scales = view_of(ElementType::f32, {5, 3}, std::span<const float>(of_b));
    if (b) operands.b.tiles = ScaleTiles{1, 32};
    product = make_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32});
  }
};

ScaleValues values_of_side(const Product& product, bool a) {
  const InverseScales& scales = a ? product.problem.scale_a : product.problem.scale_b;
  return {scales.values.begin(), scales.values.end()};
}

/// [rows, columns] filled in reading order from values that lie column after column.
ScaleValues down_columns(const ScaleValues& values, std::size_t rows) {
  ScaleValues result;
  const std::size_t columns = values.size() / rows;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      result.push_back(values[column * rows + row]);
  return result;
}

template <typename Change>
ScaleValues each_of(ScaleValues values, const Change& change) {
  for (float& x : values) x = change(x);
  return values;
}

}  // namespace

TEST_CASE("variants: wrong values of scales are those of the sides that are asked for",
          "[product]") {
  const auto above = [](float x) { return std::exp2(std::ceil(std::log2(x))); };
  for (const bool has_a : {false, true})
    for (const bool has_b : {false, true}) {
      const UnlikeScales own(has_a, has_b);
      for (const Side side : {Side::a, Side::b, Side::both}) {
        const bool a = has_a && side != Side::b;
        const bool b = has_b && side != Side::a;
        INFO(fmt::format("scales of A {}, of B {}, changed A {}, B {}", has_a, has_b, a, b));
        const auto check = [&](const std::optional<Product>& got, const ScaleValues& of_a,
                               const ScaleValues& of_b) {
          CHECK(got.has_value() == (a || b));
          if (!got) return;
          CHECK(values_of_side(*got, true) == (a ? of_a : has_a ? own.of_a : ScaleValues{}));
          CHECK(values_of_side(*got, false) == (b ? of_b : has_b ? own.of_b : ScaleValues{}));
        };
        check(without_scales(own.product, side), ScaleValues(9, 1.0F), ScaleValues(15, 1.0F));
        const auto square = [](float x) { return x * x; };
        check(with_doubled_scales(own.product, side), each_of(own.of_a, square),
              each_of(own.of_b, square));
        check(with_power_of_two_scales(own.product, side), each_of(own.of_a, above),
              each_of(own.of_b, above));
        check(with_transposed_scales(own.product, side), down_columns(own.of_a, 3),
              down_columns(own.of_b, 5));
      }
    }
}

TEST_CASE("variants: the power of two above a scale, at every edge", "[product]") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const ScaleValues scales{1.0F,        1.0000001F, 0.75F,      0.5F,     3.0F, 4.0F,  0x1p-149F,
                           0x1.8p-140F, 0x1p-126F,  0x1.8p127F, 0x1p127F, 0.0F, -3.0F, kInfinite};
  const ScaleValues expected{1.0F,      2.0F,      1.0F,      0.5F,     4.0F, 4.0F,  0x1p-149F,
                             0x1p-139F, 0x1p-126F, kInfinite, 0x1p127F, 0.0F, -3.0F, kInfinite};
  GemmOperands operands;
  operands.a.codes = codes({14, 32});
  operands.b.codes = codes({2, 32});
  operands.a.scales = real({14});
  Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
  product.problem.scale_a.values = scales;
  CHECK(values_of_side(*with_power_of_two_scales(product, Side::a), true) == expected);
}

TEST_CASE("variants: swapped scales go round where one operand has fewer rows", "[product]") {
  const UnlikeScales own(true, true);
  const std::optional<Product> got = with_swapped_scales(own.product);
  REQUIRE(got);
  ScaleValues of_a;
  for (std::size_t row = 0; row < 6; ++row)
    for (std::size_t k = 0; k < 3; ++k) of_a.push_back(own.of_b[row % 5 * 3 + k]);
  ScaleValues of_b;
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t k = 0; k < 3; ++k) of_b.push_back(own.of_a[row / 2 * 3 + k]);
  CHECK(values_of_side(*got, true) == of_a);
  CHECK(values_of_side(*got, false) == of_b);
  for (const InverseScales* scales : {&got->problem.scale_a, &got->problem.scale_b}) {
    CHECK(scales->row_block == 1);
    CHECK(scales->k_block == 32);
  }
}

TEST_CASE("variants: B is read in the other order if it is dense in one", "[product]") {
  struct Order {
    std::int64_t rows, k, row_stride, k_stride;
    std::int64_t other_row, other_k;  ///< 0: none
  };
  for (const Order& one : {Order{5, 7, 7, 1, 1, 5},
                           {5, 7, 1, 5, 7, 1},
                           {5, 7, 8, 1, 0, 0},
                           {5, 7, 1, 6, 0, 0},
                           {5, 7, 14, 2, 0, 0},
                           {5, 7, 7, 2, 0, 0},
                           {5, 7, 2, 5, 0, 0},
                           {6, 6, 6, 1, 1, 6},
                           {6, 6, 1, 6, 6, 1},
                           {1, 7, 7, 1, 0, 0},
                           {5, 1, 1, 1, 0, 0},
                           {2, 2, 2, 1, 1, 2}}) {
    Product product;
    product.problem.b = {FormatId::e4m3fn, ones().data(), one.rows, one.k,
                         one.row_stride,   one.k_stride};
    const std::optional<Product> got = with_transposed_b(product);
    INFO(fmt::format("[{}, {}], strides {} and {}", one.rows, one.k, one.row_stride, one.k_stride));
    CHECK(got.has_value() == (one.other_row != 0));
    if (!got) continue;
    CHECK(got->problem.b.row_stride == one.other_row);
    CHECK(got->problem.b.k_stride == one.other_k);
    CHECK(got->problem.b.rows == one.rows);
    CHECK(got->problem.b.k == one.k);
  }
}

TEST_CASE("variants: scales of other places, of every grid", "[product]") {
  const UnlikeScales own(true, true);
  struct Side2 {
    bool a;
    std::int64_t rows, columns, tile, row_block;
    const ScaleValues& values;
  };
  for (const Side2& side : {Side2{true, 3, 3, 32, 2, own.of_a}, {false, 5, 3, 32, 1, own.of_b}}) {
    const Side of = side.a ? Side::a : Side::b;
    const auto check = [&](const std::string& what, const std::optional<Product>& got,
                           const auto& place) {
      ScaleValues expected;
      for (std::int64_t row = 0; row < side.rows; ++row)
        for (std::int64_t column = 0; column < side.columns; ++column)
          expected.push_back(side.values[static_cast<std::size_t>(
              std::clamp<std::int64_t>(place(row, column), 0, side.rows * side.columns - 1))]);
      INFO(what << " of " << (side.a ? "A" : "B"));
      CHECK(got.has_value() == (expected != side.values));
      if (!got) return;
      CHECK(values_of_side(*got, side.a) == expected);
      CHECK(values_of_side(*got, !side.a) == (side.a ? own.of_b : own.of_a));
    };
    for (const std::int64_t by : {-2, -1, 0, 1, 2}) {
      check(fmt::format("{} tiles of K", by), with_scales_moved_along_k(own.product, of, by),
            [&](std::int64_t row, std::int64_t column) {
              return row * 3 + std::min<std::int64_t>(std::max<std::int64_t>(column + by, 0), 2);
            });
      check(fmt::format("{} rows", by), with_scales_moved_along_rows(own.product, of, by),
            [&](std::int64_t row, std::int64_t column) {
              return (row + by + side.rows) % side.rows * 3 + column;
            });
    }
    check("the first tile", with_first_scale_of_k(own.product, of),
          [](std::int64_t row, std::int64_t) { return row * 3; });
    for (const std::int64_t group : {16, 32, 64, 96})
      check(fmt::format("{} terms", group), with_scale_group_along_k(own.product, of, group),
            [&](std::int64_t row, std::int64_t column) {
              return row * 3 + column * side.tile / group;
            });
    for (const std::int64_t group : {1, 2, 3, 4, 100}) {
      const std::optional<Product> got = with_scale_group_along_rows(own.product, of, group);
      INFO(group << " rows of " << (side.a ? "A" : "B"));
      CHECK(got.has_value() == (group != side.row_block));
      if (!got) continue;
      ScaleValues expected;
      for (std::int64_t row = 0; row < (side.a ? 6 : 5); ++row)
        for (std::int64_t column = 0; column < 3; ++column)
          expected.push_back(side.values[static_cast<std::size_t>(
              std::min(row / group, side.rows - 1) * 3 + column)]);
      CHECK(values_of_side(*got, side.a) == expected);
    }
    const std::optional<Product> inverted = with_inverted_scales(own.product, of);
    REQUIRE(inverted);
    CHECK(values_of_side(*inverted, side.a) ==
          each_of(side.values, [](float x) { return 1.0F / x; }));
    CHECK(values_of_side(*inverted, !side.a) == (side.a ? own.of_b : own.of_a));
  }
  const std::optional<Product> rounded = with_rounded_scales(own.product, Side::b, FormatId::bf16);
  REQUIRE(rounded);
  CHECK(values_of_side(*rounded, false) == each_of(own.of_b, [](float x) {
          const Format& f = format(FormatId::bf16);
          return static_cast<float>(decode(f, encode(f, kNvidiaNosat, x)));
        }));
}
