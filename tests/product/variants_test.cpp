#include "fp8lab/product/variants.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
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
  product.problem.scale_a.values = product.keep(std::move(values));
  const std::optional<Product> rounded = with_power_of_two_scales(product, Side::a);
  REQUIRE(rounded);
  const auto& got = rounded->problem.scale_a.values;
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
  product.problem.scale_a.values =
      product.keep(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  product.problem.scale_a.row_block = 8;
  const auto of_a = [](const std::optional<Product>& wrong) {
    REQUIRE(wrong);
    const auto& values = wrong->problem.scale_a.values;
    return std::vector<int>(values.begin(), values.end());
  };
  using Values = std::vector<int>;
  REQUIRE(product.problem.scale_a.k_block == 128);
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
  product.problem.scale_a.values = product.keep(std::move(numbered));
  product.problem.scale_a.k_block = 0;
  CHECK_FALSE(with_scale_group_along_k(product, Side::a, 128));
  CHECK_FALSE(with_scales_moved_along_k(product, Side::a, 1));
  CHECK_FALSE(with_first_scale_of_k(product, Side::a));
  const std::optional<Product> moved = with_scales_moved_along_rows(product, Side::a, 5);
  REQUIRE(moved);
  for (std::size_t row = 0; row < 24; ++row)
    CHECK(moved->problem.scale_a.values[row] == static_cast<float>((row + 5) % 24));
}

TEST_CASE("variants: blocks of K hold the codes and both levels of the scales of their places",
          "[product]") {
  constexpr std::int64_t kBlock = 32;
  constexpr std::int64_t kTerms = 4 * kBlock + 16;  // the last block is short
  const RandomProduct random({}, {.shape = {6, 5, kTerms}});
  Product product = random.product;
  GemmProblem& p = product.problem;
  std::vector<float> of_a(3 * 5);  // tiles of two rows
  std::vector<float> of_b(5 * 5);
  for (std::size_t i = 0; i < of_a.size(); ++i) of_a[i] = 1.0F + static_cast<float>(i);
  for (std::size_t i = 0; i < of_b.size(); ++i) of_b[i] = 100.0F + static_cast<float>(i);
  p.scale_a = {product.keep(std::vector<float>(of_a)), 2, kBlock, FormatId::e8m0fnu, 0.25F};
  p.scale_b = {product.keep(std::vector<float>(of_b)), 1, kBlock, FormatId::f32, 3.0F};
  using Blocks = std::vector<std::int64_t>;
  const std::vector<BlockSources> orders{{{2, 0, 1, 4}, {0, 1, 2, 4}, {3, 3, 0, 4}},
                                         {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}},
                                         {{0, 0}, {3, 4}, {2, 4}},
                                         {{4}, {4}, {4}}};
  for (const BlockSources& from : orders) {
    const Product got = with_k_blocks(product, kBlock, from);
    const auto matches = [&](const CodeMatrix& m, const InverseScales& scales, const auto& codes,
                             const std::vector<float>& values, const Blocks& sources,
                             const InverseScales& old) {
      const ScaleLookup lookup(scales, m);
      std::int64_t wrong =
          scales.format == old.format && scales.tensor_scale == old.tensor_scale ? 0 : 1;
      for (std::int64_t row = 0; row < m.rows; ++row)
        for (std::int64_t k = 0; k < m.k; ++k) {
          const auto at = static_cast<std::size_t>(k / kBlock);
          const std::int64_t term = sources[at] * kBlock + k % kBlock;
          const auto tile = static_cast<std::size_t>(row / old.row_block * 5 + from.scales[at]);
          const auto* data = static_cast<const std::uint8_t*>(m.data);
          wrong += data[row * m.row_stride + k * m.k_stride] !=
                   codes[static_cast<std::size_t>(row * kTerms + term)];
          wrong += lookup.at(row, k) != old.tensor_scale * values[tile];
        }
      return wrong == 0;
    };
    const GemmProblem& q = got.problem;
    const std::int64_t terms =
        static_cast<std::int64_t>(from.scales.size()) * kBlock - (from.scales.back() == 4 ? 16 : 0);
    CHECK(q.b.k == terms);
    if (from.a.back() == from.b.back()) CHECK(q.a.k == terms);
    if (q.a.k == q.b.k) CHECK(matches(q.a, q.scale_a, random.a, of_a, from.a, p.scale_a));
    CHECK(matches(q.b, q.scale_b, random.b, of_b, from.b, p.scale_b));
  }
}

TEST_CASE("variants: of both sides is of A and of B", "[product]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}});
  using Change = std::optional<Product> (*)(const Product&, Side);
  const auto values = [](const std::optional<Product>& product, bool of_a) {
    REQUIRE(product);
    const GemmProblem& p = product->problem;
    const auto& found = of_a ? p.scale_a.values : p.scale_b.values;
    return std::vector<float>(found.begin(), found.end());
  };
  for (const Change change : {Change(without_scales), Change(with_doubled_scales),
                              Change(with_power_of_two_scales), Change(with_transposed_scales)}) {
    const auto both = change(random.product, Side::both);
    const auto a = change(random.product, Side::a);
    const auto b = change(random.product, Side::b);
    CHECK(values(both, true) == values(a, true));
    CHECK(values(both, false) == values(b, false));
    CHECK(values(a, false) == values(random.product, false));
    CHECK(values(b, true) == values(random.product, true));
    CHECK(values(a, true) != values(random.product, true));
    CHECK(values(b, false) != values(random.product, false));
  }
}

TEST_CASE("variants: scales of every kind become the powers of two that are not below them",
          "[product]") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, float>> pairs{{0.0F, 0.0F},
                                                   {-0.0F, -0.0F},
                                                   {1.0F, 1.0F},
                                                   {1.0000001F, 2.0F},
                                                   {0.99999994F, 1.0F},
                                                   {0.5F, 0.5F},
                                                   {3.0F, 4.0F},
                                                   {4.0F, 4.0F},
                                                   {-3.0F, -3.0F},
                                                   {0x1p-149F, 0x1p-149F},
                                                   {0x1.8p-148F, 0x1p-147F},
                                                   {0x1p-126F, 0x1p-126F},
                                                   {0x1p127F, 0x1p127F},
                                                   {infinite, infinite},
                                                   {-infinite, -infinite}};
  const auto count = static_cast<std::int64_t>(pairs.size());
  const RandomProduct random({}, {.shape = {count, count, 32}});
  Product product = random.product;
  std::vector<float> scales;
  for (const auto& [scale, power] : pairs) scales.push_back(scale);
  product.problem.scale_a = product.problem.scale_b = {scales, 1, 0};
  for (const Side side : {Side::a, Side::b, Side::both}) {
    const std::optional<Product> changed = with_power_of_two_scales(product, side);
    REQUIRE(changed);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      INFO(pairs[i].first);
      const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
      CHECK(bits(changed->problem.scale_a.values[i]) ==
            bits(side == Side::b ? pairs[i].first : pairs[i].second));
      CHECK(bits(changed->problem.scale_b.values[i]) ==
            bits(side == Side::a ? pairs[i].first : pairs[i].second));
    }
  }
}
