// What is expected of right kernels of attention, and what gates miss.

#include "fp8lab/verify/expect_attention.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/verify/attention_gates.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab::expect_attention_test {
namespace {

AttentionExpectOptions small() {
  AttentionExpectOptions o;
  o.heads = 4;
  o.kv_heads = 2;
  o.m = 8;
  o.n = 512;
  o.d = o.d_v = 64;
  o.trials = 4;
  return o;
}

const AttentionFault& fault(const AttentionExpectation& e, const std::string& name) {
  const auto found = std::ranges::find(e.faults, name, &AttentionFault::name);
  REQUIRE(found != e.faults.end());
  return *found;
}

std::size_t gate(const AttentionExpectation& e, const std::string& name) {
  const auto found = std::ranges::find(e.gates, name, &AttentionGate::name);
  REQUIRE(found != e.gates.end());
  return static_cast<std::size_t>(found - e.gates.begin());
}

double inputs_error(const AttentionExpectation& e, const std::string& cache) {
  const auto found = std::ranges::find(e.by_cache, cache, &AttentionError::of);
  REQUIRE(found != e.by_cache.end());
  return found->inputs.median;
}

/// Q, K and V of one head, of normal numbers that the scale makes as flat as wanted.
struct OneHead {
  QuantizedHeads q;
  QuantizedHeads k;
  QuantizedHeads v;

  OneHead(std::int64_t m, std::int64_t n, std::int64_t d)
      : q(normal("q", m, d)), k(normal("k", n, d)), v(normal("v", n, d)) {}
  [[nodiscard]] AttentionInputs inputs() const { return {q.operand(), k.operand(), v.operand()}; }

 private:
  static QuantizedHeads normal(const char* name, std::int64_t rows, std::int64_t columns) {
    const RandomStream stream(7, name);
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * columns; ++i)
      values.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
    return quantize_heads(values, 1, rows, columns);
  }
};

bool passes(const AttentionGates& gates, const std::string& name, const std::vector<float>& o) {
  const auto found = std::ranges::find(attention_gate_texts(), name, &AttentionGateText::name);
  REQUIRE(found != attention_gate_texts().end());
  return gates.pass(
      gates.compare(o))[static_cast<std::size_t>(found - attention_gate_texts().begin())];
}

std::vector<float> times(std::vector<float> o, float factor) {
  for (float& x : o) x *= factor;
  return o;
}

double to_bf16(double x) {
  return round_trip(format(FormatId::bf16), kNvidiaNosat, static_cast<float>(x));
}

}  // namespace

TEST_CASE("expect attention: gates pass right outputs and reject negated ones", "[verify]") {
  const AttentionExpectation e = expect_attention(small());
  CHECK(e.sample_rows == 8);
  for (const MetricSpread& m : e.metrics) {
    INFO(m.name);
    CHECK(m.median > 0.0);
    CHECK(m.largest <= m.tail);
  }
  // The error of P's cast.
  CHECK(e.metrics.front().median > 0.01);
  CHECK(e.metrics.front().median < 0.04);
  CHECK(fault(e, "negated").size == Approx(2.0));
  CHECK(fault(e, "zeros").size == Approx(1.0));
  CHECK(fault(e, "negated").caught[gate(e, "relative_l2")] == 1);
  CHECK(fault(e, "negated").caught[gate(e, "deepgemm")] == 1);
  CHECK(fault(e, "zeros").caught[gate(e, "relative_l2")] == 1);
  // A cosine is blind to a factor.
  CHECK(fault(e, "gain_1.1").caught[gate(e, "one_minus_cosine")] == 0);
  CHECK(fault(e, "gain_1.1").caught[gate(e, "relative_l2")] == 1);
  CHECK(std::ranges::is_sorted(e.faults, {}, &AttentionFault::size));
}

TEST_CASE("expect attention: a bound of 0.055 accepts negated outputs of many flat keys",
          "[verify]") {
  AttentionExpectOptions o = small();
  o.heads = o.kv_heads = 1;
  o.m = 2;
  o.n = 32768;
  o.spread = 0.25;
  o.trials = 3;
  const AttentionExpectation e = expect_attention(o);
  CHECK(e.gates[gate(e, "aiter.mha_fp8")].passes);
  CHECK(fault(e, "negated").caught[gate(e, "aiter.mha_fp8")] == 0);
  CHECK(fault(e, "zeros").caught[gate(e, "aiter.mha_fp8")] == 0);
  CHECK(fault(e, "negated").caught[gate(e, "relative_l2")] == 1);
}

TEST_CASE("expect attention: errors of caches have the order of their formats", "[verify]") {
  const AttentionExpectation e = expect_attention(small());
  CHECK(e.by_spread.size() == 5);
  CHECK(inputs_error(e, "e4m3.head") < inputs_error(e, "nvfp4"));
  CHECK(inputs_error(e, "e4m3.head") <= 1.05 * inputs_error(e, "e4m3.tensor"));
  CHECK(std::ranges::find(e.by_cache, "deepseek-v3.2", &AttentionError::of) == e.by_cache.end());
  AttentionExpectOptions latent = small();
  latent.kv_heads = 1;
  latent.n = 64;
  latent.d = 576;
  latent.d_v = 512;
  latent.trials = 2;
  const AttentionExpectation rows = expect_attention(latent);
  CHECK(inputs_error(rows, "deepseek-v3.2") > 0.001);
  CHECK(inputs_error(rows, "deepseek-v3.2") < inputs_error(rows, "e4m3.head"));
}

TEST_CASE("expect attention: errors have quantiles, over lengths and formats too", "[verify]") {
  AttentionExpectOptions o = small();
  o.m = 4;
  o.trials = 8;
  const AttentionExpectation e = expect_attention(o);
  std::vector<std::string> lengths;
  for (const std::vector<AttentionError>* list : {&e.by_spread, &e.by_length, &e.by_cache})
    for (const AttentionError& one : *list) {
      INFO(one.of);
      CHECK(one.codes.low <= one.codes.median);
      CHECK(one.codes.median <= one.codes.high);
      CHECK(one.inputs.low < one.inputs.high);
    }
  for (const AttentionError& one : e.by_length) lengths.push_back(one.of);
  CHECK(lengths == std::vector<std::string>{"8", "32", "128", "512"});
  // E5M2 has one bit less than E4M3, and is read by another instruction of the same unit.
  CHECK(inputs_error(e, "e5m2.head") > 1.5 * inputs_error(e, "e4m3.head"));
}

TEST_CASE("attention gates: Composable Kernel's of FP8 accepts negated outputs, of BF16 not",
          "[verify]") {
  const OneHead head(4, 64, 32);
  const std::vector<float> o = attention(head.inputs(), {}).o;
  const AttentionGates of_fp8(head.inputs(), {}, FormatId::e4m3fn);
  CHECK(passes(of_fp8, "ck_tile.fmha_fp8", o));
  CHECK(passes(of_fp8, "ck_tile.fmha_fp8", times(o, -1.0F)));
  CHECK(passes(of_fp8, "ck_tile.fmha_fp8", times(o, 0.0F)));
  CHECK_FALSE(passes(of_fp8, "ck_tile.fmha_fp8", times(o, 1000.0F)));
  const AttentionGates of_bf16(head.inputs(), {}, FormatId::bf16);
  CHECK(passes(of_bf16, "ck_tile.fmha_fp8", o));
  CHECK_FALSE(passes(of_bf16, "ck_tile.fmha_fp8", times(o, -1.0F)));
  std::vector<float> with_nan = o;
  with_nan[5] = NAN;
  for (const bool passed : of_bf16.pass(of_bf16.compare(with_nan))) CHECK_FALSE(passed);
}

TEST_CASE("attention gates: FlashAttention's follows the error of PyTorch", "[verify]") {
  const OneHead head(2, 5, 16);
  AttentionOptions options;
  options.softmax_scale = 0.25F;
  const auto limit = [&](const AttentionOptions& o) {
    return AttentionGates(head.inputs(), o, FormatId::bf16).flash_attention_limit();
  };
  // The rule again, element by element.
  const std::vector<float> q = dequantize(head.inputs().q);
  const std::vector<float> k = dequantize(head.inputs().k);
  const std::vector<float> v = dequantize(head.inputs().v);
  const std::vector<double> exact = attention_reference(head.inputs(), q, k, v, options);
  double apart = 0.0;
  double slack = 0.0;
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<double> p(5, 0.0);
    double total = 0.0;
    for (std::size_t j = 0; j < 5; ++j) {
      for (std::size_t i = 0; i < 16; ++i)
        p[j] += to_bf16(q[row * 16 + i]) * to_bf16(to_bf16(k[j * 16 + i]) * 0.25);
      p[j] = std::exp(to_bf16(p[j]));
      total += p[j];
    }
    for (double& one : p)
      one = round_trip(format(FormatId::e4m3fn), kNvidiaSatfinite,
                       static_cast<float>(to_bf16(one / total)));
    for (std::size_t c = 0; c < 16; ++c) {
      double o = 0.0;
      for (std::size_t j = 0; j < 5; ++j) o += p[j] * to_bf16(v[j * 16 + c]);
      const double x = to_bf16(exact[row * 16 + c]);
      apart = std::max(apart, std::abs(to_bf16(o) - x));
      slack = std::max(slack, std::abs(to_bf16(to_bf16(x + 0.3) - 0.3) - x));
    }
  }
  CHECK(limit(options) == 2.0 * to_bf16(apart) + 2.0 * to_bf16(slack));
  const AttentionGates gates(head.inputs(), options, FormatId::bf16);
  const std::vector<float> o = attention(head.inputs(), options).o;
  CHECK(passes(gates, "flashattention.fp8", o));
  CHECK_FALSE(passes(gates, "flashattention.fp8", times(o, -1.0F)));
  CHECK_FALSE(passes(gates, "flashattention.fp8", times(o, 0.0F)));
}

TEST_CASE("attention gates: FlashAttention's accepts zeros and negated outputs of many flat keys",
          "[verify]") {
  // P in E4M3 without a scale becomes 0 below 2^-10, so PyTorch's output is 0 here.
  const OneHead head(2, 8192, 32);
  AttentionOptions options;
  options.softmax_scale = 1e-3F;
  const std::vector<float> o = attention(head.inputs(), options).o;
  const AttentionGates gates(head.inputs(), options, FormatId::bf16);
  CHECK(passes(gates, "flashattention.fp8", o));
  CHECK(passes(gates, "flashattention.fp8", times(o, 0.0F)));
  CHECK(passes(gates, "flashattention.fp8", times(o, -1.0F)));
  CHECK_FALSE(passes(gates, "flashattention.fp8", times(o, -3.0F)));
  CHECK_FALSE(passes(gates, "deepgemm", times(o, -1.0F)));
}

TEST_CASE("expect attention: bad options are refused by name", "[verify]") {
  AttentionExpectOptions o = small();
  o.kv_heads = 3;
  CHECK_THROWS_WITH(expect_attention(o), "kv_heads: expected a divisor of 4 heads, got 3");
  o = small();
  o.trials = 1;
  CHECK_THROWS_WITH(expect_attention(o), "trials: expected 2 to 1000, got 1");
  o = small();
  o.spread = 0.0;
  CHECK_THROWS_WITH(expect_attention(o), "spread: expected a number above 0, got 0");
  o = small();
  o.n = 0;
  CHECK_THROWS_WITH(expect_attention(o), "n: expected a number above 0, got 0");
}

}  // namespace fp8lab::expect_attention_test
