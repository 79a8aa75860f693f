#include "fp8lab/attention/backward.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "catch.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kM = 5, kN = 7, kD = 32, kDv = 16;

std::vector<float> draw(const std::string& name, std::int64_t size) {
  const RandomStream stream(3, name);
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return values;
}

struct Tensors {
  std::vector<float> q = draw("q", kHeads* kM* kD);
  std::vector<float> k = draw("k", kKvHeads* kN* kD);
  std::vector<float> v = draw("v", kKvHeads* kN* kDv);
  std::vector<float> d_o = draw("d_o", kHeads* kM* kDv);
  QuantizedHeads q_codes = quantize_heads(q, kHeads, kM, kD);
  QuantizedHeads k_codes = quantize_heads(k, kKvHeads, kN, kD);
  QuantizedHeads v_codes = quantize_heads(v, kKvHeads, kN, kDv);

  [[nodiscard]] AttentionInputs shapes() const {
    return {q_codes.operand(), k_codes.operand(), v_codes.operand()};
  }
  [[nodiscard]] std::vector<double> output(const AttentionOptions& options) const {
    return attention_reference(shapes(), q, k, v, options);
  }
  /// Whose gradients d_o makes.
  [[nodiscard]] double loss(const AttentionOptions& options) const {
    const std::vector<double> o = output(options);
    double sum = 0.0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * static_cast<double>(d_o[i]);
    return sum;
  }
};

/// Central differences of the loss over a step that binary32 holds exactly.
double difference(Tensors& t, float& x, const AttentionOptions& options) {
  constexpr float kStep = 0x1p-8F;
  const float original = x;
  x = original + kStep;
  const double up = t.loss(options);
  const double high = x;
  x = original - kStep;
  const double down = t.loss(options);
  const double low = x;
  x = original;
  return (up - down) / (high - low);
}

double largest_error(Tensors& t, std::vector<float>& x, const std::vector<float>& gradient,
                     const AttentionOptions& options) {
  double largest = 0.0;
  double error = 0.0;
  const SweepShare share;
  for (std::size_t i = 0; i < x.size(); i += 3) {
    if (i > 0 && !share.takes_one_in(3, "central differences", i)) continue;
    const double expected = difference(t, x[i], options);
    largest = std::fmax(largest, std::abs(expected));
    error = std::fmax(error, std::abs(expected - static_cast<double>(gradient[i])));
  }
  return error / largest;
}

}  // namespace

TEST_CASE("attention backward: central differences of exact attention", "[attention]") {
  for (const bool causal : {false, true})
    for (const float scale : {0.0F, 0.5F}) {
      const AttentionOptions options{.softmax_scale = scale, .causal = causal, .threads = 2};
      Tensors t;
      const std::vector<double> exact = t.output(options);
      const std::vector<float> o(exact.begin(), exact.end());
      AttentionGradients g = attention_backward(t.shapes(), t.q, t.k, t.v, o, t.d_o, options);
      INFO("causal " << causal << ", scale " << scale);
      CHECK(largest_error(t, t.q, g.dq, options) < 1e-4);
      CHECK(largest_error(t, t.k, g.dk, options) < 1e-4);
      CHECK(largest_error(t, t.v, g.dv, options) < 1e-4);
      // The check itself sees a gradient that is off by a thousandth of the largest.
      g.dk[0] += 1e-3F * *std::max_element(g.dk.begin(), g.dk.end());
      CHECK(largest_error(t, t.k, g.dk, options) > 3e-4);
      AttentionOptions alone = options;
      alone.threads = 1;
      CHECK(attention_backward(t.shapes(), t.q, t.k, t.v, o, t.d_o, alone).dv == g.dv);
    }
}

TEST_CASE("attention backward: central differences with a soft cap and sinks", "[attention]") {
  for (const bool causal : {false, true}) {
    AttentionOptions options{.causal = causal, .threads = 2};
    options.soft_cap = 1.5F;
    options.sinks = {0.25F, -1.0F, 2.0F, 0.5F};
    Tensors t;
    const std::vector<double> exact = t.output(options);
    const std::vector<float> o(exact.begin(), exact.end());
    const auto gradients = [&](const AttentionOptions& of) {
      return attention_backward(t.shapes(), t.q, t.k, t.v, o, t.d_o, of);
    };
    const AttentionGradients g = gradients(options);
    INFO("causal " << causal);
    CHECK(largest_error(t, t.q, g.dq, options) < 1e-4);
    CHECK(largest_error(t, t.k, g.dk, options) < 1e-4);
    CHECK(largest_error(t, t.v, g.dv, options) < 1e-4);
    REQUIRE(g.d_sinks.size() == 4);
    for (std::size_t head = 0; head < 4; ++head) {
      const double expected = difference(t, options.sinks[head], options);
      CHECK(static_cast<double>(g.d_sinks[head]) == Approx(expected).epsilon(1e-3));
      CHECK(std::abs(expected) > 1e-3);
    }
    // Gradients without the cap or without the sinks are others.
    AttentionOptions without = options;
    without.soft_cap = 0.0F;
    CHECK(largest_error(t, t.k, gradients(without).dk, options) > 1e-2);
    without = options;
    without.sinks.clear();
    CHECK(largest_error(t, t.v, gradients(without).dv, options) > 1e-2);
    CHECK(gradients(without).d_sinks.empty());
  }
}

TEST_CASE("attention backward: sizes that do not fit are refused", "[attention]") {
  const Tensors t;
  const std::vector<float> o(t.d_o.size() - 1);
  CHECK_THROWS_WITH(attention_backward(t.shapes(), t.q, t.k, t.v, o, t.d_o, {}),
                    contains("o: expected 320 values, got 319"));
}
