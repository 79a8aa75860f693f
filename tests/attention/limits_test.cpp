// Values exactly at a limit, and windows, whose first column is not 0.

#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/backward.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

TEST_CASE("attention: P of half the least subnormal becomes 0, and is counted", "[attention]") {
  // Equal scores: every p is 2^p_offset. Half the least subnormal lies between it and 0: a tie to
  // the even 0.
  struct Limit {
    FormatId format;
    std::string model;
    int exponent;
  };
  const std::vector<Limit> limits{{FormatId::e4m3fn, "sm90.wgmma.e4m3", -10},
                                  {FormatId::e5m2, "sm90.wgmma.e5m2", -17}};
  for (const Limit& limit : limits)
    for (const int above : {-1, 0, 1}) {
      AttentionOptions options{.qk_model = limit.model, .pv_model = limit.model};
      options.p_format = limit.format;
      options.p_offset = static_cast<float>(limit.exponent + above);
      const std::vector<std::uint8_t> zero(32 * 32, 0);
      const std::vector<std::uint8_t> ones(32 * 32, limit.format == FormatId::e4m3fn ? 0x38 : 0x3c);
      const AttentionOperand q{limit.format, zero, 1, 32, 32};
      const AttentionOperand v{limit.format, ones, 1, 32, 32};
      const AttentionResult result = attention({q, q, v}, options);
      INFO(limit.model << ", p = 2^" << limit.exponent + above);
      CHECK(result.tiles.at(0).p_max == std::exp2(options.p_offset));
      CHECK(result.tiles.at(0).underflowed == (above <= 0 ? 32 * 32 : 0));
      // What is counted is what the cast loses.
      CHECK(result.o.at(0) == (above <= 0 ? 0.0F : 1.0F));
    }
}

TEST_CASE("attention backward: a window's keys alone get gradients, and the right ones",
          "[attention]") {
  constexpr std::int64_t kRows = 6;
  constexpr std::int64_t kWidth = 32;
  const auto draw = [](const char* name) {
    const RandomStream stream(5, name);
    std::vector<float> x;
    for (std::uint64_t i = 0; i < kRows * kWidth; ++i)
      x.push_back(static_cast<float>(stream.normal(i)));
    return x;
  };
  const std::vector<float> q = draw("q");
  const std::vector<float> k = draw("k");
  const std::vector<float> v = draw("v");
  std::vector<float> d_o(kRows * kWidth, 0.0F);
  // One row has a gradient; it sees itself alone: P is 1, dV is its dO, dK and dQ are 0.
  for (std::size_t c = 0; c < kWidth; ++c) d_o[4 * kWidth + c] = static_cast<float>(c + 1);
  const QuantizedHeads codes = quantize_heads(q, 1, kRows, kWidth);
  const AttentionInputs shapes{codes.operand(), codes.operand(), codes.operand()};
  AttentionOptions options;
  options.window_left = 0;
  options.window_right = 0;
  const std::vector<double> exact = attention_reference(shapes, q, k, v, options);
  const std::vector<float> o(exact.begin(), exact.end());
  CHECK(o == v);
  const AttentionGradients g = attention_backward(shapes, q, k, v, o, d_o, options);
  CHECK(g.dv == d_o);
  CHECK(g.dk == std::vector<float>(kRows * kWidth, 0.0F));
  CHECK(g.dq == std::vector<float>(kRows * kWidth, 0.0F));
  // Two columns a row: the first of them has gradients, those before it have none.
  options.window_left = 1;
  const std::vector<double> two = attention_reference(shapes, q, k, v, options);
  const AttentionGradients pair =
      attention_backward(shapes, q, k, v, std::vector<float>(two.begin(), two.end()), d_o, options);
  for (std::size_t i = 0; i < kRows * kWidth; ++i) {
    const std::size_t row = i / kWidth;
    INFO("key " << row);
    CHECK((pair.dv[i] != 0.0F) == (row == 3 || row == 4));
    CHECK((pair.dk[i] != 0.0F) == (row == 3 || row == 4));
  }
}

TEST_CASE("attention check: the distance is relative to the golden output", "[attention]") {
  const std::vector<std::uint8_t> zero(32 * 32, 0);
  const std::vector<std::uint8_t> twos(32 * 32, 0x40);
  const AttentionOperand q{FormatId::e4m3fn, zero, 1, 32, 32};
  const AttentionOperand v{FormatId::e4m3fn, twos, 1, 32, 32};
  // Every output is the mean of twos.
  std::vector<float> got(32 * 32, 2.0F);
  const auto verdict = [&](double tolerance) {
    return verify_attention({q, q, v}, {}, got, FormatId::f32, tolerance);
  };
  CHECK(verdict(0.0).pass);
  CHECK(verdict(0.0).distance == 0.0);
  got[5] = 5.0F;
  got[70] = -2.0F;
  // A distance of 5, (3^2 + 4^2)^(1/2), over the norm of 1024 twos, 64.
  CHECK(verdict(0.0).mismatches == 2);
  CHECK(verdict(0.0).distance == 5.0 / 64.0);
  CHECK_FALSE(verdict(0.078).pass);
  CHECK(verdict(0.079).pass);
}

namespace {

std::vector<float> normal_heads(const char* name) {
  const RandomStream stream(7, name);
  std::vector<float> x;
  for (std::uint64_t i = 0; i < 64 * 32; ++i) x.push_back(static_cast<float>(stream.normal(i)));
  return x;
}

}  // namespace

TEST_CASE("attention check: the order of a row sum is named as the kernel has it", "[attention]") {
  const QuantizedHeads q = quantize_heads(normal_heads("q"), 1, 64, 32);
  const QuantizedHeads k = quantize_heads(normal_heads("k"), 1, 64, 32);
  const QuantizedHeads v = quantize_heads(normal_heads("v"), 1, 64, 32);
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  AttentionOptions kernel;
  AttentionOptions golden;
  kernel.row_sum = RowSum::columns;
  golden.row_sum = RowSum::quads;
  const auto text_of = [&](const AttentionOptions& made, const AttentionOptions& expected) {
    const AttentionVerdict verdict =
        verify_attention(in, expected, attention(in, made).o, FormatId::f32);
    CHECK(verdict.mismatches > 0);
    for (const AttentionCause& cause : verdict.causes)
      if (cause.name == "row_sum" && cause.mismatches == 0) return cause.text;
    return std::string("not named");
  };
  CHECK(text_of(kernel, golden) == "the row sum in the order of columns");
  CHECK(text_of(golden, kernel) == "the row sum in the four parts of a quad");
}

TEST_CASE("attention report: each tensor that was quantized here counts as an input",
          "[attention]") {
  const std::vector<float> values = normal_heads("q");
  const QuantizedHeads codes = quantize_heads(values, 1, 64, 32);
  const AttentionTensor given = attention_tensor(codes.operand());
  const AttentionTensor made = attention_tensor(values, 1, 64, 32);
  const auto same = [](const AttentionReport& r) {
    return r.against_inputs.relative_l2 == r.against_codes.relative_l2;
  };
  CHECK(same(attention_report(given, given, given, {})));
  CHECK_FALSE(same(attention_report(made, given, given, {})));
  CHECK_FALSE(same(attention_report(given, made, given, {})));
  CHECK_FALSE(same(attention_report(given, given, made, {})));
}
