// Values exactly at a limit, and windows, whose first column is not 0.

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/backward.hpp"
#include "fp8lab/attention/calls.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "message_of.hpp"

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

TEST_CASE("attention check: a mask on either side that the kernel has not is named",
          "[attention]") {
  const QuantizedHeads q = quantize_heads(normal_heads("q"), 1, 64, 32);
  const QuantizedHeads k = quantize_heads(normal_heads("k"), 1, 64, 32);
  const QuantizedHeads v = quantize_heads(normal_heads("v"), 1, 64, 32);
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  const auto options = [](bool causal, std::int64_t left, std::int64_t right) {
    AttentionOptions o;
    o.causal = causal;
    o.window_left = left;
    o.window_right = right;
    return o;
  };
  const auto causes = [&](const AttentionOptions& made, const AttentionOptions& expected) {
    std::vector<std::string> names;
    for (const AttentionCause& cause :
         verify_attention(in, expected, attention(in, made).o, FormatId::f32).causes)
      if (cause.mismatches == 0) names.push_back(cause.name + ": " + cause.text);
    return names;
  };
  using Names = std::vector<std::string>;
  const AttentionOptions none = options(false, kNoWindow, kNoWindow);
  CHECK(causes(none, options(true, kNoWindow, kNoWindow)) == Names{"no_mask: no mask"});
  CHECK(causes(none, options(false, kNoWindow, 3)) == Names{"no_mask: no mask"});
  CHECK(causes(none, options(false, 3, kNoWindow)) == Names{"no_mask: no mask"});
  CHECK(causes(none, options(false, 3, 3)) == Names{"no_mask: no mask"});
  CHECK(causes(options(true, kNoWindow, kNoWindow), none) == Names{"mask: a causal mask"});
  const AttentionOptions window = options(false, 5, 3);
  const std::string off = "mask_off_by_one: one column too ";
  CHECK(causes(options(false, 6, 3), window) == Names{off + "many on the left"});
  CHECK(causes(options(false, 4, 3), window) == Names{off + "few on the left"});
  CHECK(causes(options(false, 5, 4), window) == Names{off + "many on the right"});
  CHECK(causes(options(false, 5, 2), window) == Names{off + "few on the right"});
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

TEST_CASE("attention: each row sees the columns of its mask or window", "[attention]") {
  // 3 rows and 5 columns: row 0 stands at column 2.
  const auto seen = [](std::int64_t m, std::int64_t row, bool causal, std::int64_t left,
                       std::int64_t right) {
    AttentionOptions o;
    o.causal = causal;
    o.window_left = left;
    o.window_right = right;
    AttentionShape shape{};
    shape.m = m;
    shape.n = 5;
    const SeenColumns columns = seen_columns(shape, o, row);
    return std::pair{columns.begin, columns.end};
  };
  using Ends = std::pair<std::int64_t, std::int64_t>;
  CHECK(seen(3, 0, false, kNoWindow, kNoWindow) == Ends{0, 5});
  CHECK(seen(3, 0, true, kNoWindow, kNoWindow) == Ends{0, 3});
  CHECK(seen(3, 2, true, kNoWindow, kNoWindow) == Ends{0, 5});
  CHECK(seen(3, 0, true, 1, kNoWindow) == Ends{1, 3});
  CHECK(seen(3, 0, false, 1, 1) == Ends{1, 4});
  CHECK(seen(3, 2, false, 0, 3) == Ends{4, 5});
  CHECK(seen(3, 1, false, 2, kNoWindow) == Ends{1, 5});
  CHECK(seen(3, 1, false, 4, kNoWindow) == Ends{0, 5});
  // 7 rows: the first two stand before every column.
  CHECK(seen(7, 1, true, kNoWindow, kNoWindow) == Ends{0, 0});
  CHECK(seen(7, 1, false, 3, 1) == Ends{0, 1});
  CHECK(seen(7, 2, true, 0, kNoWindow) == Ends{0, 1});
}

TEST_CASE("attention: each operand and option that does not fit is named alone", "[attention]") {
  const std::vector<std::uint8_t> codes(4 * 32 * 32, 0x38);
  const auto operand = [&](std::int64_t heads, std::int64_t rows, std::int64_t columns) {
    return AttentionOperand{
        FormatId::e4m3fn,
        std::span(codes).first(static_cast<std::size_t>(heads * rows * columns)),
        heads,
        rows,
        columns,
        {}};
  };
  const AttentionInputs good{operand(4, 8, 32), operand(2, 16, 32), operand(2, 16, 24)};
  const auto message = [&](const AttentionInputs& in, const AttentionOptions& o) -> std::string {
    return test::message_of([&] { validate(in, o); });
  };
  const auto with = [&](const auto& change) {
    AttentionInputs in = good;
    AttentionOptions o;
    change(in, o);
    return message(in, o);
  };
  CHECK(message(good, {}) == "accepted");
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.k = operand(2, 16, 16); }) ==
        "K: expected [heads, n, d] with d = 32, as Q has, got d = 16");
  const std::string of_v = "V: expected [heads, n, d_v] = [2, 16, d_v], as K has, got ";
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.v = operand(2, 15, 24); }) ==
        of_v + "[2, 15, 24]");
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.v = operand(1, 16, 24); }) ==
        of_v + "[1, 16, 24]");
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.q = operand(3, 8, 32); }) ==
        "K: expected a number of heads that divides Q's 3, got 2");
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.v.codes = in.v.codes.first(5); }) ==
        "V: expected codes of [2, 16, 24], got 5 codes");
  const std::vector<float> three(3, 1.0F);
  CHECK(with([&](AttentionInputs& in, AttentionOptions&) { in.q.inverse_scales = three; }) ==
        "Q inverse scales: expected none or 4, got 3");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.window_left = -2; }) ==
        "window_left: expected 0 or more columns, or -1: all, got -2");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.window_right = -2; }) ==
        "window_right: expected 0 or more columns, or -1: all, got -2");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) {
          o.causal = true;
          o.window_right = 0;
        }) == "window_right: expected -1 with causal, which is a window_right of 0, got 0");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.causal = true; }) == "accepted");
  for (const float offset : {-100.0F, 100.0F})
    CHECK(with([&](AttentionInputs&, AttentionOptions& o) { o.p_offset = offset; }) == "accepted");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.p_offset = -100.5F; }) ==
        "p_offset: expected a number from -100 to 100, got -100.5");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.softmax_scale = -0.5F; }) ==
        "softmax_scale: expected a finite number >= 0, got -0.5");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.q_tile = 0; }) ==
        "q_tile: expected 1 to 1099511627776, got 0");
  CHECK(with([](AttentionInputs&, AttentionOptions& o) { o.q_tile = 1; }) == "accepted");
}

TEST_CASE("attention: options have the values that are written beside them", "[attention]") {
  const AttentionOptions o;
  CHECK(o.qk_model == "sm90.wgmma.e4m3");
  CHECK(o.pv_model == "sm90.wgmma.e4m3");
  CHECK((o.q_tile == 128 && o.kv_tile == 128));
  CHECK((o.softmax_scale == 0.0F && o.p_offset == 8.0F && o.rescale_threshold == 0.0F));
  CHECK_FALSE(o.causal);
  CHECK_FALSE(o.two_level);
  CHECK(o.threads == 0);
  CHECK(o.tile_order == TileOrder::last_to_first);
  CHECK(o.p_format == FormatId::e4m3fn);
  CHECK((o.window_left == -1 && o.window_right == -1));
  CHECK(o.row_sum == RowSum::columns);
}

TEST_CASE("attention: every option of each call is that of its source", "[attention]") {
  const auto text_of_options = [](const AttentionOptions& o) {
    return fmt::format(
        "{} {}, tiles {} x {}, scale {}, P {} times 2^{}, stale by {}, {}, {}, "
        "window {} {}, causal {}, two levels {}, threads {}",
        o.qk_model, o.pv_model, o.q_tile, o.kv_tile, o.softmax_scale, format(o.p_format).name,
        o.p_offset, o.rescale_threshold, to_string(o.tile_order), to_string(o.row_sum),
        o.window_left, o.window_right, o.causal, o.two_level, o.threads);
  };
  std::string all;
  for (const AttentionCall& call : attention_calls()) {
    all += fmt::format("{}: {} {} | {}\n", call.name, format(call.operands).name,
                       to_string(call.standing), text_of_options(call.options));
    for (const std::int64_t d : {1, 64, 100, 1000}) {
      AttentionOptions own = call.options_for(d);
      own.q_tile = call.options.q_tile;
      own.kv_tile = call.options.kv_tile;
      CHECK(text_of_options(own) == text_of_options(call.options));
    }
  }
  const std::string literature(to_string(Standing::from_literature));
  const auto line = [&](const char* name, const char* operands, const char* options) {
    return fmt::format("{}: {} {} | {}, window -1 -1, causal false, two levels false, threads 0\n",
                       name, operands, to_string(Standing::from_literature), options);
  };
  const auto blackwell = [](const char* offset, const char* threshold) {
    return fmt::format(
        "sm100.tcgen05.e4m3 sm100.tcgen05.e4m3, tiles 128 x 128, scale 0, P e4m3fn "
        "times 2^{}, stale by {}, last_to_first, columns",
        offset, threshold);
  };
  CHECK(all ==
        line("flashattention3.fp8", "e4m3fn",
             "sm90.wgmma.e4m3 sm90.wgmma.e4m3, tiles 128 x 224, scale 0, P e4m3fn times 2^8, "
             "stale by 0, last_to_first, quads") +
            line("flashattention4.fp8", "e4m3fn", blackwell("8", "0").c_str()) +
            line("flashattention4.fp8.2717", "e4m3fn", blackwell("4", "4").c_str()) +
            line("flashattention4.fp8.before_2717", "e4m3fn", blackwell("8", "4").c_str()) +
            line("vllm.flashattention4.fp8", "e4m3fn", blackwell("8", "0.75").c_str()) +
            line("flashinfer.hopper.fp8", "e4m3fn",
                 "sm90.wgmma.e4m3 sm90.wgmma.e4m3, tiles 128 x 192, scale 0, P e4m3fn times "
                 "2^8.807355, stale by 0, last_to_first, quads") +
            line("triton.tutorial.fp8", "e5m2",
                 "sm90.wgmma.e5m2 sm90.wgmma.e5m2, tiles 128 x 64, scale 0, P e5m2 times 2^0, "
                 "stale by 0, first_to_last, columns"));
  CHECK(find_attention_call("triton.tutorial.fp8").options_for(300).kv_tile == 64);
  CHECK_THROWS_WITH(find_attention_call("triton"),
                    "call: expected one of flashattention3.fp8, flashattention4.fp8, "
                    "flashattention4.fp8.2717, flashattention4.fp8.before_2717, "
                    "vllm.flashattention4.fp8, flashinfer.hopper.fp8, triton.tutorial.fp8 "
                    "(did you mean triton.tutorial.fp8?), got 'triton'");
}
