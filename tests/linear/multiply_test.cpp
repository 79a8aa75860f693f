#include "fp8lab/linear/multiply.hpp"

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "train/same_bits.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

std::vector<float> normal_values(std::string_view name, std::int64_t count) {
  const RandomStream random(5, name);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

}  // namespace

TEST_CASE("multiply adds in the order of k, on every target and for any thread count", "[train]") {
  for (const ProductSize size : {ProductSize{1, 1, 1}, ProductSize{70, 45, 300},
                                 ProductSize{8, 32, 16}, ProductSize{129, 3, 257}}) {
    const std::vector<float> a = normal_values("a", size.m * size.k);
    const std::vector<float> b = normal_values("b", size.n * size.k);
    std::vector<float> expected(static_cast<std::size_t>(size.m * size.n));
    for (std::int64_t i = 0; i < size.m; ++i)
      for (std::int64_t j = 0; j < size.n; ++j) {
        float sum = 0.0F;
        for (std::int64_t k = 0; k < size.k; ++k)
          sum = std::fma(a[static_cast<std::size_t>(i * size.k + k)],
                         b[static_cast<std::size_t>(k * size.n + j)], sum);
        expected[static_cast<std::size_t>(i * size.n + j)] = sum;
      }
    for (const Target target : available_targets())
      for (const int threads : {1, 2}) {
        CAPTURE(size.m, size.n, size.k, to_string(target), threads);
        std::vector<float> d(expected.size(), 7.0F);
        // B is stored [k, n]: strides, not a copy, make it [n, k].
        multiply_with_target({a.data(), size.k, 1}, {b.data(), 1, size.n}, {d.data(), size.n}, size,
                             threads, target);
        CHECK(same_bits(d, expected));
        // The same product transposed: D^T = B A^T.
        std::vector<float> turned(expected.size());
        multiply_with_target({b.data(), 1, size.n}, {a.data(), size.k, 1}, {turned.data(), size.m},
                             {size.n, size.m, size.k}, threads, target);
        bool same = true;
        for (std::int64_t i = 0; i < size.m; ++i)
          for (std::int64_t j = 0; j < size.n; ++j)
            same = same && turned[static_cast<std::size_t>(j * size.m + i)] ==
                               expected[static_cast<std::size_t>(i * size.n + j)];
        CHECK(same);
      }
  }
}

TEST_CASE("multiply of nothing is zero", "[train]") {
  std::vector<float> d(6, 1.0F);
  multiply(Operand<float>{nullptr, 0, 1}, Operand<float>{nullptr, 0, 1}, {d.data(), 3}, {2, 3, 0},
           1);
  CHECK(d == std::vector<float>(6, 0.0F));
}
