// Every choice of an epilogue's parts over sums whose sides are unlike, element by element: values,
// amax, and how far each value may be off.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/epilogue.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kPartRows = 5;
constexpr std::int64_t kPartColumns = 6;

/// The distance to the next number of binary32 away from zero, 0 where there is none.
double step_at(float x) {
  if (!std::isfinite(x)) return 0.0;
  int exponent = 0;
  std::frexp(x, &exponent);
  return x == 0.0F ? 0x1p-149 : std::ldexp(1.0, std::max(exponent - 24, -149));
}

/// Of one element, after the formulas of epilogue.hpp.
struct OneElement {
  float value = 0.0F;
  float before_scale = 0.0F;  ///< w
  double reach = 0.0;
};

float up_to_activation(const Epilogue& e, const std::vector<float>& sums, std::int64_t i,
                       std::int64_t j) {
  const auto row = static_cast<std::size_t>(i);
  const auto column = static_cast<std::size_t>(j);
  const auto at = static_cast<std::size_t>(i * kPartColumns + j);
  float x = sums[at];
  if (!e.row_scales.empty()) x = x * e.row_scales[row];
  if (!e.column_scales.empty()) x = x * e.column_scales[column];
  x = e.bias.empty() ? e.alpha * x : std::fma(e.alpha, x, e.bias[column]);
  if (e.c != nullptr) x = std::fma(e.beta, e.c[at], x);
  return x;
}

OneElement expected_element(const Epilogue& e, const std::vector<float>& sums, std::int64_t i,
                            std::int64_t j) {
  const float v = up_to_activation(e, sums, i, j);
  OneElement one;
  float w = v;
  switch (e.activation) {
    case Activation::none:
      break;
    case Activation::relu:
      w = v > 0.0F ? v : 0.0F;
      break;
    case Activation::leaky_relu:
      w = v > 0.0F ? v : v * e.slope;
      break;
    default:
      w = static_cast<float>(activation_value(e, static_cast<double>(v)));
  }
  const bool of_v = e.activation == Activation::gelu || e.activation == Activation::gelu_tanh;
  one.reach = static_cast<double>(e.activation_ulps) * step_at(of_v ? v : w);
  if (e.activation == Activation::swiglu) {
    const float up = up_to_activation(e, sums, i, j + kPartColumns / 2);
    w = w * up;
    one.reach = one.reach * std::abs(static_cast<double>(up)) + step_at(w);
  }
  one.before_scale = w;
  one.value = w;
  if (e.output_scale) {
    one.value = w * *e.output_scale;
    one.reach = one.reach * std::abs(static_cast<double>(*e.output_scale)) + step_at(one.value);
  }
  return one;
}

}  // namespace

TEST_CASE("epilogue: every choice of parts, element by element", "[product]") {
  const RandomStream draws(9, "epilogue parts");
  std::uint64_t next = 0;
  const auto vector_of = [&](std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(2.0 * draws.normal(next++)));
    return values;
  };
  std::vector<float> sums = vector_of(kPartRows * kPartColumns);
  sums[3] = 0.0F;
  sums[8] = 0x1p-130F;
  sums[16] = 0x1.8p60F;
  const std::vector<float> rows = vector_of(kPartRows);
  const std::vector<float> columns = vector_of(kPartColumns);
  const std::vector<float> bias = vector_of(kPartColumns);
  const std::vector<float> c = vector_of(kPartRows * kPartColumns);
  std::string wrong;
  for (const Activation activation : activations())
    for (unsigned parts = 0; parts < 64; ++parts) {
      const auto has = [&](unsigned bit) { return (parts >> bit & 1U) != 0; };
      Epilogue e;
      e.activation = activation;
      e.slope = 0.3F;
      e.activation_ulps = 3.0F;
      if (has(0)) e.row_scales = rows;
      if (has(1)) e.column_scales = columns;
      if (has(2)) e.bias = bias;
      if (has(3)) e.c = c.data();
      if (has(3)) e.beta = -1.3F;
      if (has(4)) e.alpha = 0.7F;
      if (has(5)) e.output_scale = -2.7F;
      const bool transcends = activation >= Activation::gelu;
      const std::int64_t width = activation == Activation::swiglu ? kPartColumns / 2 : kPartColumns;
      for (const int threads : {1, 3}) {
        const Finished got = finish(e, sums, kPartRows, kPartColumns, true, threads);
        const std::string name =
            std::string(to_string(activation)) + ", parts " + std::to_string(parts);
        REQUIRE(got.values.size() == static_cast<std::size_t>(kPartRows * width));
        CHECK(got.reach.size() == (transcends ? got.values.size() : 0));
        float amax = 0.0F;
        for (std::int64_t i = 0; i < kPartRows; ++i)
          for (std::int64_t j = 0; j < width; ++j) {
            const OneElement one = expected_element(e, sums, i, j);
            const auto at = static_cast<std::size_t>(i * width + j);
            if (std::isfinite(one.before_scale)) amax = std::max(amax, std::abs(one.before_scale));
            const double reach = std::isfinite(one.reach) ? one.reach : 0.0;
            if (std::bit_cast<std::uint32_t>(got.values[at]) !=
                    std::bit_cast<std::uint32_t>(one.value) ||
                (transcends && got.reach[at] != reach))
              wrong += name + " at " + std::to_string(i) + ", " + std::to_string(j) + "\n";
          }
        if (got.amax != amax) wrong += name + ": amax\n";
        CHECK(finish(e, sums, kPartRows, kPartColumns, false, threads).reach.empty());
      }
    }
  INFO(wrong.substr(0, 2000));
  CHECK(wrong.empty());
}
