#include "fp8lab/product/variants.hpp"

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("variants: scales that are powers of two stay as they are", "[product]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {1, 4}});
  Product product = random.product;
  std::vector<float> values(24 * 4);
  std::vector<float> above(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int exponent = static_cast<int>(i / 3) - 16;
    // Exact, a little above, and the last value below the next power.
    values[i] = i % 3 == 0   ? std::ldexp(1.0F, exponent)
                : i % 3 == 1 ? std::ldexp(1.0F + 0x1p-23F, exponent)
                             : std::ldexp(2.0F - 0x1p-23F, exponent);
    above[i] = std::ldexp(1.0F, i % 3 == 0 ? exponent : exponent + 1);
  }
  product.problem.a_scales.values = product.keep(std::move(values));
  const std::optional<Product> rounded = with_power_of_two_scales(product, Side::a);
  REQUIRE(rounded);
  const auto& got = rounded->problem.a_scales.values;
  CHECK(std::vector<float>(got.begin(), got.end()) == above);
}

TEST_CASE("variants: what has one row or one term is the same transposed", "[product]") {
  using Options = RandomProduct::Options;
  CHECK_FALSE(with_transposed_b(RandomProduct({}, Options{.shape = {4, 1, 64}}).product));
  CHECK_FALSE(with_transposed_b(RandomProduct({}, Options{.shape = {4, 5, 1}}).product));
  CHECK(with_transposed_b(RandomProduct({}, Options{.shape = {4, 5, 2}}).product));
}

TEST_CASE("variants: scales at a wrong place are those of that place", "[product]") {
  // A: 3 tiles of 8 rows and 4 of 128 terms. Values are numbered in memory.
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {1, 4}});
  Product product = random.product;
  product.problem.a_scales.values =
      product.keep(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  product.problem.a_scales.row_block = 8;
  const auto of_a = [](const std::optional<Product>& wrong) {
    REQUIRE(wrong);
    const auto& values = wrong->problem.a_scales.values;
    return std::vector<int>(values.begin(), values.end());
  };
  using Values = std::vector<int>;
  REQUIRE(product.problem.a_scales.k_block == 128);
  CHECK(of_a(with_scales_moved_along_rows(product, Side::a, 1)) ==
        Values{4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3});
  CHECK(of_a(with_scales_moved_along_rows(product, Side::a, -1)) ==
        Values{8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK_FALSE(with_scales_moved_along_rows(product, Side::a, 3));
  CHECK_FALSE(with_scales_moved_along_rows(product, Side::b, 1));
  CHECK(of_a(with_scales_moved_along_k(product, Side::a, 1)) ==
        Values{1, 2, 3, 3, 5, 6, 7, 7, 9, 10, 11, 11});
  CHECK(of_a(with_scales_moved_along_k(product, Side::a, -1)) ==
        Values{0, 0, 1, 2, 4, 4, 5, 6, 8, 8, 9, 10});
  CHECK_FALSE(with_scales_moved_along_k(product, Side::a, 0));
  CHECK(of_a(with_first_scale_of_k(product, Side::a)) ==
        Values{0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8});
  CHECK(of_a(with_scale_group_along_k(product, Side::a, 64)) ==
        Values{0, 2, 4, 6, 4, 6, 8, 10, 8, 10, 11, 11});
  CHECK(of_a(with_scale_group_along_k(product, Side::a, 256)) ==
        Values{0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9});
  CHECK_FALSE(with_scale_group_along_k(product, Side::a, 128));
  const Values rows = of_a(with_scale_group_along_rows(product, Side::a, 10));
  REQUIRE(rows.size() == 24 * 4);
  for (int row = 0; row < 24; ++row)
    CHECK(rows[static_cast<std::size_t>(4 * row + 3)] == 4 * (row / 10) + 3);
  CHECK_FALSE(with_scale_group_along_rows(product, Side::a, 8));
}

TEST_CASE("variants: scales of all terms lie in rows of one tile", "[product]") {
  const RandomProduct random({}, {.tiles_a = {24, 1}});
  Product product = random.product;
  std::vector<float> numbered(24);
  for (std::size_t i = 0; i < numbered.size(); ++i) numbered[i] = static_cast<float>(i);
  product.problem.a_scales.values = product.keep(std::move(numbered));
  product.problem.a_scales.k_block = 0;
  CHECK_FALSE(with_scale_group_along_k(product, Side::a, 128));
  CHECK_FALSE(with_scales_moved_along_k(product, Side::a, 1));
  CHECK_FALSE(with_first_scale_of_k(product, Side::a));
  const std::optional<Product> moved = with_scales_moved_along_rows(product, Side::a, 5);
  REQUIRE(moved);
  for (std::size_t row = 0; row < 24; ++row)
    CHECK(moved->problem.a_scales.values[row] == static_cast<float>((row + 5) % 24));
}
