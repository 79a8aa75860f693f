// What is expected of right kernels of attention, and what gates miss.

#include "fp8lab/verify/expect_attention.hpp"

#include <algorithm>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

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
  return found->inputs;
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
  o.trials = 8;
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
