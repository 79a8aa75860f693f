#include "fp8lab/product/variants.hpp"

#include <cmath>
#include <vector>

#include "catch.hpp"
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
