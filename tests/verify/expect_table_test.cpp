// What is expected of products of several kinds, all numbers and all faults.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/verify/expect.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

/// Each gate's numbers, and each fault with its size and what sees it at each reference.
std::string short_text(const Expectation& e) {
  std::string text = fmt::format("{} x {} of {} x {} x {}, rms {:.3g}\n", e.sample_rows,
                                 e.sample_columns, e.options.m, e.options.n, e.options.k, e.rms);
  for (const ExpectedGate& gate : e.gates) {
    text += fmt::format("{}: {:.3g}", to_string(gate.reference), gate.rtol);
    for (const MetricSpread& m : gate.metrics) {
      // Below, the last digits are those of FP64.
      const bool exact = m.name == "excess" || m.name == "max_ulp";
      const bool enough = exact || m.median > 1e-7;
      text +=
          enough ? fmt::format(" {:.3g} {:.3g} {:.3g},", m.median, m.largest, m.tail) : " tiny,";
    }
    text.back() = '\n';
    CHECK(gate.calc_diff == gate.metrics[1].tail);
    CHECK(gate.cosine == 1.0 - gate.metrics[2].tail);
    CHECK(gate.atol == gate.metrics[3].tail);
    CHECK((!gate.max_ulp || *gate.max_ulp == static_cast<std::uint64_t>(std::min(
                                                 std::ceil(gate.metrics[4].tail), 0x1p62))));
  }
  for (const ExpectedFault& fault : e.faults.at(0)) {
    text += fmt::format("{} {:.3g} ", fault.name, fault.size);
    for (const std::vector<ExpectedFault>& faults : e.faults)
      for (const ExpectedFault& same : faults)
        if (same.name == fault.name)
          text += fmt::format("{}{}{}{} ", same.close ? 'a' : '-', same.calc_diff ? 'd' : '-',
                              same.cosine ? 'c' : '-', same.max_ulp ? 'u' : '-');
    text.back() = '\n';
  }
  return text;
}

}  // namespace

TEST_CASE("expect: numbers and faults of products of several kinds", "[verify]") {
  ExpectOptions o;
  o.m = 6;
  o.n = 5;
  o.k = 96;
  o.trials = 11;
  o.threads = 1;
  o.gemm.promotion_interval = 32;
  o.gemm.output = default_output(FormatId::bf16);
  CHECK(short_text(expect_errors(o)) ==
        "6 x 5 of 6 x 5 x 96, rms 10.4\n"
        "fp64: 0.00781 0.00166 0.0021 0.0048, 1.37e-06 2.21e-06 1.15e-05, 1.14e-06 1.74e-06 "
        "9.44e-06, 0 0.000156 0.0016, 0 2 3.91e+126\n"
        "fp32: 0.00781 0.00166 0.0021 0.0048, 1.37e-06 2.21e-06 1.15e-05, 1.14e-06 1.74e-06 "
        "9.44e-06, 0 0.000156 0.0016, 0 2 3.91e+126\n"
        "bf16: 0.00781 tiny, tiny, tiny, 0 9.54e-05 0.000976, 0 2 3.91e+126\n"
        "missing_promotion 0 ---- ---- ----\n"
        "accumulator_fp32 1.75e-05 ---- ---- ----\n"
        "gain_0.999 0.00203 ---- ---- ----\n"
        "bf16_accumulator 0.00274 a--- a--- a---\n"
        "truncated_output 0.00414 ---- ---- ----\n"
        "gain_0.99 0.0106 ad-- ad-- a---\n"
        "zero_element 0.0168 adc- adc- a---\n"
        "sign_of_element 0.0336 adc- adc- a---\n"
        "dropped_1_terms 0.0737 adc- adc- a---\n"
        "gain_0.72 0.28 ad-- ad-- a---\n"
        "dropped_16_terms 0.346 adc- adc- a---\n"
        "fnuz_codes 0.75 ad-- ad-- a---\n"
        "exchanged_columns 0.919 adc- adc- a---\n"
        "zero_tile_64x64 1 adc- adc- a---\n"
        "zero_tile_8x8 1 adc- adc- a---\n");
  o = {};
  o.gemm.model = "sm89.mma.e4m3.e5m2";
  o.gemm.output = default_output(FormatId::e4m3fn);
  o.distribution = Distribution::log_normal;
  o.m = 140;
  o.n = 9;
  o.k = 16;
  o.trials = 10;
  o.threads = 1;
  CHECK(short_text(expect_errors(o)) ==
        "128 x 9 of 140 x 9 x 16, rms 25.6\n"
        "fp64: 0.125 0.0271 0.0299 0.0452, 0.000364 0.000445 0.00102, 0.000347 0.000441 0.000999, "
        "0 0 0, 0 1 4.68e+70\n"
        "fp32: 0.125 0.0271 0.0299 0.0452, 0.000364 0.000445 0.00102, 0.000347 0.000441 0.000999, "
        "0 0 0, 0 1 4.68e+70\n"
        "bf16: 0.125 0.027 0.0301 0.0475, 0.000363 0.000452 0.00113, 0.00035 0.000448 0.00109, 0 0 "
        "0, 1 1 1\n"
        "accumulator_fp32 0 ---- ---- ----\n"
        "gain_0.999 0.00757 ---- ---- ----\n"
        "bf16_accumulator 0.0121 ---- ---- ----\n"
        "output_through_bf16 0.0121 ---- ---- ----\n"
        "zero_element 0.016 a--- a--- a--u\n"
        "gain_0.99 0.0305 ---- ---- ----\n"
        "sign_of_element 0.032 a--- a--- a--u\n"
        "truncated_output 0.0585 -d-- -d-- ----\n"
        "zero_tile_8x8 0.176 adc- adc- adcu\n"
        "dropped_1_terms 0.202 adc- adc- adcu\n"
        "gain_0.72 0.282 ad-- ad-- ad-u\n"
        "exchanged_columns 0.523 adc- adc- adcu\n"
        "zero_tile_64x64 0.668 adc- adc- adcu\n"
        "fnuz_codes 0.75 ad-- ad-- ad-u\n");
  o = {};
  o.gemm.promotion_interval = 128;
  o.gemm.output = default_output(FormatId::f16);
  o.gemm.epilogue.activation = Activation::swiglu;
  o.gemm.epilogue.alpha = 0.25F;
  o.recipe = "deepseek-v3";
  o.distribution = Distribution::student_t;
  o.m = 4;
  o.n = 10;
  o.k = 256;
  o.trials = 10;
  o.threads = 1;
  CHECK(short_text(expect_errors(o)) ==
        "4 x 5 of 4 x 10 x 256, rms 8.39\n"
        "fp64: 0.000977 0.000388 0.000577 0.00811, tiny, tiny, 0.00049 0.00182 2.97e+65, 8 69 "
        "5.01e+11\n"
        "fp32: 0.000977 0.000388 0.000577 0.0081, tiny, tiny, 0.00049 0.00182 2.97e+65, 8 69 "
        "5.01e+11\n"
        "bf16: 0.000977 0.00151 0.00265 0.0727, 1.14e-06 3.5e-06 0.00263, 1.02e-06 1.81e-06 "
        "0.00383, 0.0214 0.0605 1.83e+05, 10 71 3.82e+08\n"
        "truncated_output 0.000472 ---- ---- ----\n"
        "accumulator_fp32 0.000541 ---- ---- ----\n"
        "gain_0.999 0.00116 ---- ---- ----\n"
        "output_through_bf16 0.00184 ---- ---- ----\n"
        "bf16_accumulator 0.00247 ---- ---- ----\n"
        "bf16_scale_b 0.00251 ---- ---- ----\n"
        "bf16_scale_a 0.00321 ---- ---- ----\n"
        "gain_0.99 0.0101 -d-- -d-- ----\n"
        "zero_element 0.0332 -dc- -dc- ----\n"
        "dropped_1_terms 0.0332 -dc- -dc- ----\n"
        "sign_of_element 0.0663 -dc- -dc- ----\n"
        "gain_0.72 0.28 -d-- -d-- -d--\n"
        "stale_scale_a 0.344 -dc- -dc- -dc-\n"
        "dropped_16_terms 0.367 -dc- -dc- -dc-\n"
        "stale_scale_b 0.45 -dc- -dc- ----\n"
        "e8m0_scale_b 0.623 -dc- -dc- -d--\n"
        "dropped_128_terms 0.948 -dc- -dc- -dc-\n"
        "fnuz_codes 0.952 -dc- -dc- -dc-\n"
        "zero_tile_64x64 1 -dc- -dc- -dc-\n"
        "zero_tile_8x8 1 -dc- -dc- -dc-\n"
        "exchanged_columns 1.09 -dc- -dc- -dc-\n"
        "missing_promotion 1.24 -dc- -dc- -dc-\n"
        "e8m0_scale_a 1.25 -dc- -dc- -dc-\n"
        "scale_a_of_next_row 1.45 -dc- -dc- -dc-\n"
        "missing_scale_a inf adc- adc- adc-\n"
        "missing_scale_b inf -dc- -dc- -dc-\n");
  // Operands of one's own, more of them than are looked at, against the floats that they were.
  std::vector<float> a;
  std::vector<float> b;
  const RandomStream draws(6, "expect table");
  for (std::uint64_t i = 0; i < 130 * 64; ++i) a.push_back(static_cast<float>(draws.uniform(i)));
  for (std::uint64_t i = 0; i < 6 * 64; ++i)
    b.push_back(static_cast<float>(1.0 + 8.0 * draws.uniform(99999 + i)));
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::f32, {130, 64}, std::span<const float>(a));
  operands.b.codes = view_of(ElementType::f32, {6, 64}, std::span<const float>(b));
  for (const bool originals : {false, true}) {
    o = {};
    o.operands = operands;
    o.recipe = "torchao-rowwise";
    o.against_originals = originals;
    o.gemm.output = default_output(FormatId::f32);
    o.trials = 10;
    o.threads = 1;
    if (originals) o.gemm.epilogue.activation = Activation::swiglu;
    CHECK(short_text(expect_errors(o)) ==
          (originals ? "128 x 3 of 130 x 3 x 64, rms 2.44e+04\n"
                       "fp64: 1.3e-06 0.0131 0.0131 0.014, 8.51e-05 8.57e-05 9.74e-05, 8.25e-05 "
                       "8.28e-05 9.24e-05, 1.13e+03 1.13e+03 3.08e+03, 5.78e+05 5.78e+05 1.58e+06\n"
                       "fp32: 1.3e-06 0.0131 0.0131 0.014, 8.51e-05 8.57e-05 9.74e-05, 8.25e-05 "
                       "8.28e-05 9.24e-05, 1.13e+03 1.13e+03 3.08e+03, 5.78e+05 5.78e+05 1.58e+06\n"
                       "bf16: 1.3e-06 0.0131 0.0131 0.0141, 8.57e-05 8.62e-05 9.89e-05, 8.26e-05 "
                       "8.31e-05 9.35e-05, 1.18e+03 1.18e+03 2.46e+03, 6.05e+05 6.05e+05 1.53e+06\n"
                       "e8m0_scale_a 0 ---- ---- ----\n"
                       "e8m0_scale_b 0 ---- ---- ----\n"
                       "output_through_f16 0.000197 ---- ---- ----\n"
                       "accumulator_fp32 0.000247 ---- ---- ----\n"
                       "gain_0.999 0.001 ---- ---- ----\n"
                       "output_through_bf16 0.00161 ---- ---- ----\n"
                       "bf16_accumulator 0.00255 ---- ---- ----\n"
                       "gain_0.99 0.01 -d-- -d-- -d--\n"
                       "dropped_1_terms 0.0357 -dc- -dc- adc-\n"
                       "zero_element 0.0381 adcu adcu adcu\n"
                       "exchanged_columns 0.0711 adcu adcu adcu\n"
                       "sign_of_element 0.0762 adcu adcu adcu\n"
                       "zero_tile_8x8 0.23 adcu adcu adcu\n"
                       "gain_0.72 0.28 ad-u ad-u ad-u\n"
                       "dropped_16_terms 0.423 adcu adcu adcu\n"
                       "zero_tile_64x64 0.697 adcu adcu adcu\n"
                       "fnuz_codes 0.938 ad-u ad-u ad-u\n"
                       "missing_scale_b 1.02e+03 ad-u ad-u ad-u\n"
                       "missing_scale_a 6.55e+04 ad-u ad-u ad-u\n"
                     : "128 x 6 of 130 x 6 x 64, rms 156\n"
                       "fp64: 1.3e-06 0.000129 0.000129 0.000131, tiny, tiny, 0.0438 0.0438 "
                       "0.0438, 2.98e+03 2.98e+03 2.98e+03\n"
                       "fp32: 1.3e-06 0.000129 0.000129 0.000131, tiny, tiny, 0.0438 0.0438 "
                       "0.0438, 2.98e+03 2.98e+03 2.98e+03\n"
                       "bf16: 1.3e-06 0.00186 0.00186 0.0019, 1.73e-06 1.74e-06 1.8e-06, 1.72e-06 "
                       "1.73e-06 1.79e-06, 0.531 0.531 0.531, 3.48e+04 3.48e+04 3.48e+04\n"
                       "e8m0_scale_a 0 ---- ---- ----\n"
                       "e8m0_scale_b 0 ---- ---- ----\n"
                       "accumulator_fp32 0.000129 ---- ---- ----\n"
                       "output_through_f16 0.000235 adcu adcu ----\n"
                       "gain_0.999 0.001 ad-u ad-u ad-u\n"
                       "bf16_accumulator 0.00186 adcu adcu a--u\n"
                       "output_through_bf16 0.00186 adcu adcu a--u\n"
                       "gain_0.99 0.01 ad-u ad-u ad-u\n"
                       "dropped_1_terms 0.0186 adcu adcu adcu\n"
                       "zero_element 0.0308 adcu adcu adcu\n"
                       "sign_of_element 0.0616 adcu adcu adcu\n"
                       "exchanged_columns 0.0782 adcu adcu adcu\n"
                       "zero_tile_8x8 0.24 adcu adcu adcu\n"
                       "dropped_16_terms 0.241 adcu adcu adcu\n"
                       "gain_0.72 0.28 ad-u ad-u ad-u\n"
                       "zero_tile_64x64 0.702 adcu adcu adcu\n"
                       "fnuz_codes 0.75 ad-u ad-u ad-u\n"
                       "missing_scale_b 31 ad-u ad-u ad-u\n"
                       "missing_scale_a 255 ad-u ad-u ad-u\n"));
  }
}

TEST_CASE("expect: at a large risk a gate is as wide as what was seen", "[verify]") {
  ExpectOptions o;
  o.gemm.output = default_output(FormatId::f32);
  o.distribution = Distribution::log_normal;
  o.m = 8;
  o.n = 7;
  o.k = 64;
  o.trials = 25;
  o.risk = 0.1;
  o.threads = 1;
  const std::string text = short_text(expect_errors(o));
  CHECK(text.substr(0, text.find("accumulator_fp32")) ==
        "8 x 7 of 8 x 7 x 64, rms 59.2\n"
        "fp64: 1.3e-06 7.92e-05 0.000246 0.000246, tiny, tiny, 0.0184 0.0881 0.0881, 1.02e+04 "
        "6.55e+04 6.55e+04\n"
        "fp32: 1.3e-06 7.92e-05 0.000246 0.000246, tiny, tiny, 0.0184 0.0881 0.0881, 1.02e+04 "
        "6.55e+04 6.55e+04\n"
        "bf16: 1.3e-06 0.00166 0.00227 0.00227, 1.38e-06 2.58e-06 2.58e-06, 1.3e-06 1.93e-06 "
        "1.98e-06, 0.328 1.56 1.56, 3.28e+04 6.55e+04 6.55e+04\n");
  for (const ExpectedGate& gate : expect_errors(o).gates)
    for (const MetricSpread& one : gate.metrics) CHECK(one.tail >= one.largest);
  // At a small one the largest differences of heavy distributions are far from those seen.
  o.risk = 1e-6;
  std::string tails;
  for (const Distribution one : {Distribution::normal, Distribution::uniform,
                                 Distribution::student_t, Distribution::log_normal}) {
    o.distribution = one;
    const Expectation e = expect_errors(o);
    tails += fmt::format("{} {:.3g} {:.3g}; ", to_string(one), e.gates.at(2).metrics.at(3).largest,
                         e.gates.at(2).atol);
  }
  CHECK(tails ==
        "normal 0.082 0.424; uniform 0.0644 0.15; student_t 0.117 3.06; log_normal 1.56 294; ");
}

TEST_CASE("expect: operands of a model are of eight bits, both", "[verify]") {
  ExpectOptions o;
  o.m = o.n = 4;
  o.k = 32;
  o.trials = 10;
  const auto said = [&](const char* model) {
    o.gemm.model = model;
    return test::message_of([&] { (void)expect_errors(o); });
  };
  CHECK(said("sm89.mma.e5m2.e4m3") == "accepted");
  for (const char* model : {"sm90.wgmma.f16", "sm80.mma.bf16", "sm80.mma.tf32"})
    CHECK(said(model) ==
          fmt::format("model: expected an instruction of 8-bit operands, or a recipe, got {}",
                      model));
}
