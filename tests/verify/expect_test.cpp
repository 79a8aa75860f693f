#include "fp8lab/verify/expect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/verify/tails.hpp"

using namespace fp8lab;

namespace {

ExpectOptions small(const char* model, FormatId output) {
  ExpectOptions o;
  o.gemm.model = model;
  o.gemm.output = default_output(output);
  o.m = 32;
  o.n = 24;
  o.k = 256;
  o.trials = 20;
  return o;
}

const ExpectedFault& fault(const Expectation& e, std::size_t reference, std::string_view name) {
  for (const ExpectedFault& one : e.faults[reference])
    if (one.name == name) return one;
  FAIL("no fault " << name);
  return e.faults[reference].front();
}

}  // namespace

TEST_CASE("tails: quantiles of known distributions", "[verify]") {
  // The mean over many fits is near the true quantile, and above it: the allowance.
  const RandomStream stream(9, "tails");
  double whole = 0.0;
  double maximum = 0.0;
  constexpr int kFits = 200;
  constexpr int kValues = 40;
  std::uint64_t at = 0;
  for (int fit = 0; fit < kFits; ++fit) {
    std::vector<double> log_normal;
    std::vector<double> gumbel;
    for (int i = 0; i < kValues; ++i) {
      log_normal.push_back(std::exp(0.1 * stream.normal(at)));
      gumbel.push_back(10.0 - std::log(-std::log(stream.uniform(at) + 0x1p-60)));
      ++at;
    }
    whole += tail_of_whole(log_normal, 1e-6) / kFits;
    maximum += tail_of_maximum(gumbel, 1e-6, 100.0, false) / kFits;
  }
  const double true_whole = std::exp(0.1 * 4.753424);
  const double true_maximum = 10.0 + std::log(100.0) - std::log(-std::log1p(-1e-6));
  CHECK(whole > true_whole);
  CHECK(whole < 1.2 * true_whole);
  CHECK(maximum > true_maximum);
  CHECK(maximum < 2.5 * true_maximum);
  CHECK(tail_of_whole({0.0, 0.0}, 1e-6) == 0.0);
}

TEST_CASE("expect: fresh right outputs pass the gate, its tail is not far", "[verify][long]") {
  for (const FormatId output : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn})
    for (const char* model : {"sm90.wgmma.e4m3", "fp32"}) {
      ExpectOptions o = small(model, output);
      if (std::string_view(model) == "fp32") o.recipe = "te-current";
      const Expectation e = expect_errors(o);
      o.seed = 77;
      o.trials = 50;
      const Expectation fresh = expect_errors(o);
      for (std::size_t r = 0; r < e.gates.size(); ++r)
        for (std::size_t i = 0; i < e.gates[r].metrics.size(); ++i) {
          const MetricSpread& gate = e.gates[r].metrics[i];
          INFO(gate.name << " " << fresh.gates[r].metrics[i].largest);
          CHECK(fresh.gates[r].metrics[i].largest <= gate.tail);
          if (gate.name != "max_ulp") CHECK(gate.tail <= 12.0 * gate.largest + 1e-13);
        }
    }
}

TEST_CASE("expect: the gate of Hopper's sums sees what BF16's does not", "[verify][long]") {
  const Expectation narrow = expect_errors(small("sm90.wgmma.e4m3", FormatId::bf16));
  const Expectation wide = expect_errors(small("sm100.mma.e4m3", FormatId::f32));
  INFO(describe(narrow) << describe(wide));
  // An exact unit in FP32 shows another accumulator; under a BF16 output nobody sees it.
  CHECK(fault(wide, 0, "accumulator_sm90.wgmma.e4m3").close);
  CHECK(!fault(narrow, 0, "accumulator_fp32").close);
  for (const Expectation* e : {&narrow, &wide})
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(fault(*e, r, "gain_0.72").close);
      CHECK(fault(*e, r, "gain_0.72").calc_diff);
      CHECK(fault(*e, r, "dropped_128_terms").close);
    }
  CHECK(narrow.gates[0].cosine < 1.0);
  CHECK(narrow.gates[0].cosine > 0.9999);
  // Sorted by size.
  CHECK(std::is_sorted(narrow.faults[0].begin(), narrow.faults[0].end(),
                       [](const auto& x, const auto& y) { return x.size < y.size; }));
}

TEST_CASE("expect: a fault whose outputs are not finite is the largest one", "[verify][long]") {
  // Without a scale outputs are a hundred times as large: they leave FP16, and become infinities.
  ExpectOptions o = small("sm90.wgmma.e4m3", FormatId::f16);
  o.recipe = "te-current";
  o.gemm.epilogue.alpha = 128.0F;
  const Expectation e = expect_errors(o);
  for (std::size_t r = 0; r < e.faults.size(); ++r) {
    INFO("reference " << r);
    const ExpectedFault& missing = fault(e, r, "missing_scale_a");
    CHECK(missing.size == std::numeric_limits<double>::infinity());
    CHECK(e.faults[r].back().size == std::numeric_limits<double>::infinity());
    CHECK((missing.close && missing.calc_diff && missing.cosine));
    CHECK(missing.max_ulp == e.gates[r].max_ulp.has_value());
    CHECK(fault(e, r, "zero_element").size < 1.0);
  }
}

TEST_CASE("expect: the root mean square of outputs is that of K independent products",
          "[verify][long]") {
  // A sum of K products of standard normal numbers has the deviation sqrt(K).
  for (const std::int64_t k : {64, 1024}) {
    ExpectOptions o = small("fp32", FormatId::f32);
    o.recipe = "te-current";
    o.m = o.n = 64;
    o.k = k;
    const double expected = std::sqrt(static_cast<double>(k));
    INFO("k " << k);
    CHECK(std::abs(expect_errors(o).rms / expected - 1.0) < 0.03);
  }
}

TEST_CASE("expect: three trials judge a fault, by their median and by all of them", "[verify]") {
  const Expectation e = expect_errors(small("sm90.wgmma.e4m3", FormatId::f32));
  // The first trial alone has 0.00103 here, and its gate sees the other fault.
  const double size = fault(e, 0, "zero_element").size;
  INFO("size " << size);
  CHECK(std::abs(size - 0.0021394) < 1e-6);
  CHECK(std::abs(fault(e, 0, "sign_of_element").size / size - 2.0) < 1e-3);
  CHECK_FALSE(fault(e, 0, "bf16_accumulator").close);
}

TEST_CASE("expect: results depend on the seed and on nothing else", "[verify]") {
  ExpectOptions o = small("sm90.wgmma.e4m3", FormatId::bf16);
  o.threads = 1;
  const std::string one = describe(expect_errors(o));
  o.threads = 2;
  CHECK(describe(expect_errors(o)) == one);
  o.seed = 2;
  CHECK(describe(expect_errors(o)) != one);
}

TEST_CASE("expect: each limit of a gate says which faults it catches and misses", "[verify]") {
  Expectation e;
  e.gates.resize(2);
  // Each limit catches from another fault on.
  const auto fault = [](const char* name, double size) {
    ExpectedFault one;
    one.name = name;
    one.size = size;
    one.close = size >= 1.0;
    one.calc_diff = size >= 2.0;
    one.cosine = size >= 3.0;
    one.max_ulp = size >= 4.0;
    return one;
  };
  e.faults.assign(2, {fault("f1", 1.0), fault("f2", 2.0), fault("f3", 3.0), fault("f4", 4.0)});
  const std::string text = describe(e);
  CHECK_THAT(text, contains("rtol/atol  smallest fault caught f1 (1), largest missed none\n"));
  CHECK_THAT(text, contains("calc_diff  smallest fault caught f2 (2), largest missed f1 (1)\n"));
  CHECK_THAT(text, contains("cosine     smallest fault caught f3 (3), largest missed f2 (2)\n"));
  CHECK_THAT(text, contains("max_ulp    smallest fault caught f4 (4), largest missed f3 (3)\n"));
}

TEST_CASE("expect: a bound in ulps that catches no fault is none", "[verify]") {
  // Sums of products of either sign come close to zero, where a change of sign is 10^9 ulps.
  ExpectOptions o = small("sm90.wgmma.e4m3", FormatId::f32);
  const Expectation signs = expect_errors(o);
  for (std::size_t r = 0; r < signs.gates.size(); ++r) {
    CHECK_FALSE(signs.gates[r].max_ulp);
    CHECK(std::ranges::none_of(signs.faults[r], &ExpectedFault::max_ulp));
  }
  CHECK_THAT(describe(signs), contains(", max_ulp none\n"));
  // Sums of positive products stay away from it.
  o.distribution = Distribution::uniform;
  const Expectation positive = expect_errors(o);
  REQUIRE(positive.gates[0].max_ulp);
  CHECK(*positive.gates[0].max_ulp < 1U << 23);
  CHECK(std::ranges::any_of(positive.faults[0], &ExpectedFault::max_ulp));
  CHECK_THAT(describe(positive), contains(fmt::format("max_ulp {}\n", *positive.gates[0].max_ulp)));
}

TEST_CASE("expect: what does not fit is refused by name", "[verify]") {
  ExpectOptions o = small("sm90.wgmma.e4m3", FormatId::bf16);
  o.trials = 3;
  CHECK_THROWS_WITH(expect_errors(o), "trials: expected 10 to 100000, got 3");
  o.trials = 20;
  o.risk = 0.0;
  CHECK_THROWS_AS(expect_errors(o), Error);
  o.risk = 1e-6;
  o.against_originals = true;
  CHECK_THROWS_AS(expect_errors(o), Error);
  CHECK_THROWS_AS(find_distribution("cauchy"), Error);
}
