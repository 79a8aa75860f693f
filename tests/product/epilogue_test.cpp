#include "fp8lab/product/epilogue.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

std::vector<float> draws(std::size_t count, const char* name) {
  const RandomStream stream(3, name);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(stream.normal(i)));
  return values;
}

/// All operands of an epilogue over sums [24, 20].
struct Tensors {
  std::vector<float> row = draws(24, "row");
  std::vector<float> column = draws(20, "column");
  std::vector<float> bias = draws(20, "bias");
  std::vector<float> c = draws(24 * 20, "c");

  [[nodiscard]] Epilogue epilogue(Activation activation) const {
    Epilogue e;
    e.alpha = 0.3F;
    e.row_scales = row;
    e.column_scales = column;
    e.bias = bias;
    e.c = c.data();
    e.beta = -1.7F;
    e.activation = activation;
    e.output_scale = 3.1F;
    return e;
  }
};

float one(Activation activation, float v) {
  Epilogue e;
  e.activation = activation;
  return finish(e, {v}, 1, 1).values[0];
}

}  // namespace

TEST_CASE("epilogue: a sample has the bits of the whole", "[product]") {
  const Tensors tensors;
  for (const Activation activation : activations()) {
    INFO(to_string(activation));
    RandomProduct random({.promotion_interval = 128}, {});
    random.product.epilogue = tensors.epilogue(activation);
    const Product& p = random.product;
    const Sample sample{{0, 7, 23}, {1, 2, 9}};
    REQUIRE(p.columns() == (activation == Activation::swiglu ? 10 : 20));
    const std::vector<float> whole = compute(p);
    REQUIRE(whole.size() == p.size());
    const std::vector<float> part = compute(take(p, sample));
    for (std::size_t i = 0; i < 9; ++i) {
      const auto at =
          static_cast<std::size_t>(sample.rows[i / 3] * p.columns() + sample.columns[i % 3]);
      CHECK(bits(part[i]) == bits(whole[at]));
    }
    CHECK(compute_finished(p, true, 2).values == whole);  // threads change nothing
  }
}

TEST_CASE("epilogue: each step is one rounding in its order", "[product]") {
  // 2^-24 of its square is lost where the product is rounded first, and kept by an FMA.
  const float near_one = 1.0F + 0x1p-12F;
  const std::vector<float> bias{-1.0F};
  Epilogue fused;
  fused.alpha = near_one;
  fused.bias = bias;
  CHECK(finish(fused, {near_one}, 1, 1).values[0] == 0x1p-11F + 0x1p-24F);
  const std::vector<float> row{near_one};
  Epilogue scaled;
  scaled.row_scales = row;
  scaled.bias = bias;
  CHECK(finish(scaled, {near_one}, 1, 1).values[0] == 0x1p-11F);
  const float c = -1.0F;
  Epilogue with_c;
  with_c.alpha = near_one;
  with_c.c = &c;
  with_c.beta = near_one;
  // alpha * t is rounded, beta * C is not: 1 + 2^-11 - (1 + 2^-12).
  CHECK(finish(with_c, {near_one}, 1, 1).values[0] == 0x1p-12F);
  Epilogue out;
  out.activation = Activation::relu;
  out.output_scale = 2.0F;
  const Finished two = finish(out, {3.0F, -8.0F}, 1, 2);
  CHECK(two.values == std::vector<float>{6.0F, 0.0F});
  CHECK(two.amax == 3.0F);
}

TEST_CASE("epilogue: activations at special values", "[product]") {
  for (const Activation activation : activations()) {
    if (activation == Activation::swiglu || activation == Activation::none) continue;
    INFO(to_string(activation));
    CHECK(bits(one(activation, kNan)) == kCanonicalNan);
    CHECK(one(activation, kInf) == kInf);
    CHECK(one(activation, 0.0F) == 0.0F);
  }
  CHECK(bits(one(Activation::relu, -0.0F)) == 0);
  CHECK(bits(one(Activation::leaky_relu, -2.0F)) == bits(-2.0F * 0.01F));
  CHECK(std::isnan(one(Activation::silu, -kInf)));
  // Published values: erf(1/sqrt 2) = 0.6826894921370859, 1/(1 + 1/e) = 0.7310585786300049.
  CHECK(one(Activation::gelu, 1.0F) == static_cast<float>((1.0 + 0.6826894921370859) / 2.0));
  CHECK(one(Activation::silu, 1.0F) == 0.7310585786300049F);
  // Relative accuracy where 1 + erf cancels: Phi(-10) = 7.61985302416e-24.
  CHECK(one(Activation::gelu, -10.0F) == -7.61985302416e-23F);
}

TEST_CASE("epilogue: what does not fit is refused by name", "[product]") {
  const std::vector<float> three(3, 1.0F);
  const auto message = [](const Epilogue& e) -> std::string {
    return test::message_of([&] { validate(e, 2, 5); }, "");
  };
  Epilogue bias;
  bias.bias = three;
  Epilogue rows;
  rows.row_scales = three;
  Epilogue alpha;
  alpha.alpha = std::numeric_limits<float>::infinity();
  Epilogue gate;
  gate.activation = Activation::swiglu;
  CHECK(message(bias) == "bias: expected [n] = [5], got [3]");
  CHECK(message(rows) == "row_scales: expected [m] = [2], got [3]");
  CHECK(message(alpha) == "alpha: expected a finite number, got inf");
  CHECK(message(gate).find("even number of columns") != std::string::npos);
  CHECK(message({}).empty());
  CHECK_THROWS_AS(find_activation("gelu2"), Error);
}

TEST_CASE("epilogue: activations are what PyTorch documents, over their whole bend", "[product]") {
  // Written down once more, in extended precision and with the functions of the documentation.
  const auto documented = [](Activation activation, long double x) -> long double {
    const long double pi = std::acos(-1.0L);
    if (activation == Activation::gelu) return 0.5L * x * (1.0L + std::erf(x / std::sqrt(2.0L)));
    if (activation == Activation::gelu_tanh)
      return 0.5L * x * (1.0L + std::tanh(std::sqrt(2.0L / pi) * (x + 0.044715L * x * x * x)));
    return x / (1.0L + std::exp(-x));
  };
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    Epilogue e;
    e.activation = activation;
    for (int i = -700; i <= 700; ++i) {
      const double x = i / 128.0;
      const auto expected = static_cast<double>(documented(activation, x));
      INFO(to_string(activation) << " of " << x);
      CHECK(std::abs(activation_value(e, x) - expected) <= 1e-14 * std::abs(x));
    }
  }
}

TEST_CASE("epilogue: a leaky ReLU has its slope at and below zero alone", "[product]") {
  Epilogue e;
  e.activation = Activation::leaky_relu;
  for (const float slope : {0.0F, 0.25F, 1.0F, 4.0F, -0.5F, -3.0F}) {
    e.slope = slope;
    for (const float v : {-7.0F, -1.0F, -0.0F, 0.0F, 0x1p-149F, 1.0F, 7.0F}) {
      const float expected = v > 0.0F ? v : v * slope;
      CAPTURE(slope, v, expected);
      CHECK(bits(finish(e, {v}, 1, 1).values[0]) == bits(expected));
      CHECK(activation_value(e, v) == static_cast<double>(expected));
    }
  }
}

TEST_CASE("epilogue: every part that does not fit is refused by its own name", "[product]") {
  const std::vector<float> three(3, 1.0F);
  const auto message = [&](const auto& change) {
    Epilogue e;
    change(e);
    return message_of([&] { validate(e, 2, 5); });
  };
  CHECK(message([&](Epilogue& e) { e.row_scales = three; }) ==
        "row_scales: expected [m] = [2], got [3]");
  CHECK(message([&](Epilogue& e) { e.column_scales = three; }) ==
        "column_scales: expected [n] = [5], got [3]");
  CHECK(message([&](Epilogue& e) { e.column_scales = std::span(three).first(2); }) ==
        "column_scales: expected [n] = [5], got [2]");
  CHECK(message([&](Epilogue& e) { e.bias = std::span(three).first(2); }) ==
        "bias: expected [n] = [5], got [2]");
  for (const auto& [x, text] : {std::pair{kInf, "inf"}, {-kInf, "-inf"}, {kNan, "nan"}}) {
    const std::string number = std::string(": expected a finite number, got ") + text;
    const float value = x;
    CHECK(message([&](Epilogue& e) { e.alpha = value; }) == "alpha" + number);
    CHECK(message([&](Epilogue& e) { e.beta = value; }) == "beta" + number);
    CHECK(message([&](Epilogue& e) { e.slope = value; }) == "slope" + number);
    CHECK(message([&](Epilogue& e) { e.output_scale = value; }) == "output_scale" + number);
  }
  const auto ulps = [&](float x) { return message([&](Epilogue& e) { e.activation_ulps = x; }); };
  CHECK(ulps(0.0F) == "accepted");
  CHECK(ulps(1048576.0F) == "accepted");
  CHECK(ulps(1048577.0F) == "activation_ulps: expected 0 to 2^20, got 1048577");
  CHECK(ulps(-0.5F) == "activation_ulps: expected 0 to 2^20, got -0.5");
}

TEST_CASE("epilogue: its text names every part in the order of the steps", "[product]") {
  const std::vector<float> two(2, 1.0F);
  Epilogue e;
  CHECK(describe(e).empty());
  e.row_scales = two;
  CHECK(describe(e) == "row scales");
  e.column_scales = two;
  e.alpha = 0.5F;
  e.bias = two;
  e.c = two.data();
  e.beta = -2.0F;
  e.activation = Activation::leaky_relu;
  e.slope = 0.25F;
  e.output_scale = 3.0F;
  CHECK(describe(e) ==
        "row scales, column scales, alpha 0.5, bias, beta -2, leaky_relu 0.25, output scale 3");
  e.row_scales = {};
  e.activation = Activation::silu;
  e.activation_ulps = 7.0F;
  CHECK(describe(e) ==
        "column scales, alpha 0.5, bias, beta -2, silu (within 7 ulp), output scale 3");
}

TEST_CASE("epilogue: the amax is of finite values, and each NaN has the same bits", "[product]") {
  Epilogue none;
  Epilogue relu;
  relu.activation = Activation::relu;
  for (const Epilogue& e : {none, relu}) {
    CHECK(finish(e, {3.0F, kInf, -kInf, kNan}, 1, 4).amax == 3.0F);
    CHECK(finish(e, {kNan, kNan}, 2, 1).amax == 0.0F);
    CHECK(finish(e, {1.0F, 2.0F, 5.0F, 4.0F}, 2, 2).amax == 5.0F);
  }
  Epilogue silu;
  silu.activation = Activation::silu;
  Epilogue swiglu;
  swiglu.activation = Activation::swiglu;
  Epilogue scaled = relu;
  scaled.output_scale = 0.0F;
  const auto bits = [](const Epilogue& e, std::vector<float> sums) {
    const auto n = static_cast<std::int64_t>(sums.size());
    return std::bit_cast<std::uint32_t>(finish(e, std::move(sums), 1, n).values.at(0));
  };
  CHECK(bits(silu, {-kInf}) == kCanonicalNan);
  CHECK(bits(swiglu, {kInf, 0.0F}) == kCanonicalNan);
  CHECK(bits(scaled, {kInf}) == kCanonicalNan);
  // Below the least normal number a unit in the last place is the least subnormal.
  Epilogue gelu;
  gelu.activation = Activation::gelu;
  for (const float v : {0.0F, 0x1p-140F, 0x1p-127F, 0x1p-126F})
    CHECK(finish(gelu, {v}, 1, 1, true).reach.at(0) == 4 * 0x1p-149);
  CHECK(finish(gelu, {0x1p-125F}, 1, 1, true).reach.at(0) == 4 * 0x1p-148);
}
