// Every mistake that a check of attention knows is named where a kernel makes it, and the limits of
// what it is given.

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "catch.hpp"
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

namespace {

constexpr std::int64_t kColumns = 32;

QuantizedHeads heads(const char* name, std::int64_t rows, std::int64_t columns = kColumns) {
  const RandomStream stream(13, name);
  std::vector<float> x;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    x.push_back(static_cast<float>(2.0 * stream.normal(static_cast<std::uint64_t>(i))));
  return quantize_heads(x, 1, rows, columns);
}

/// 6 rows of Q, 300 of K and V; V is narrower than Q and K.
struct Case {
  QuantizedHeads q = heads("q", 6);
  QuantizedHeads k = heads("k", 300);
  QuantizedHeads v = heads("v", 300, 16);
  [[nodiscard]] AttentionInputs inputs() const { return {q.operand(), k.operand(), v.operand()}; }

  /// Names and texts of the causes that are named where a kernel has other options; they give every
  /// bit, since one of them does.
  [[nodiscard]] std::vector<std::string> named(const AttentionOptions& golden,
                                               const AttentionOptions& kernel) const {
    const AttentionVerdict verdict =
        verify_attention(inputs(), golden, attention(inputs(), kernel).o, FormatId::f32);
    INFO(verdict.text());
    CHECK(verdict.mismatches > 0);
    std::vector<std::string> names;
    for (const AttentionCause& cause : verdict.causes) {
      CHECK(cause.mismatches == 0);
      CHECK(cause.distance == 0.0);
      names.push_back(cause.name + ": " + cause.text);
    }
    return names;
  }
};

using Names = std::vector<std::string>;

/// Equal scores: every output is the mean of its column of V, whose codes are `code`.
struct Means {
  std::vector<std::uint8_t> zero = std::vector<std::uint8_t>(kColumns * kColumns, 0);
  std::vector<std::uint8_t> codes;
  std::vector<float> scale;

  explicit Means(std::uint8_t code, float inverse_scale = 1.0F)
      : codes(kColumns * kColumns, code), scale{inverse_scale} {}
  [[nodiscard]] AttentionInputs inputs() const {
    const AttentionOperand q{FormatId::e4m3fn, zero, 1, kColumns, kColumns};
    return {q, q, {FormatId::e4m3fn, codes, 1, kColumns, kColumns, scale}};
  }
};

}  // namespace

TEST_CASE("attention check: tiles of every size are named, in either order", "[attention]") {
  const Case c;
  // Steps of 16 terms, of which each of these sizes is a multiple.
  for (const TileOrder order : {TileOrder::last_to_first, TileOrder::first_to_last}) {
    AttentionOptions golden;
    golden.pv_model = "sm89.mma.e4m3";
    golden.tile_order = order;
    AttentionOptions other = golden;
    const bool reversed = order == TileOrder::last_to_first;
    other.tile_order = reversed ? TileOrder::first_to_last : TileOrder::last_to_first;
    CHECK(c.named(golden, other) == Names{std::string("tile_order: tiles of K and V ") +
                                          (reversed ? "first to last" : "last to first")});
    for (const std::int64_t tile : {32, 64, 96, 160, 176, 192, 224, 256}) {
      const std::string text = "tiles of " + std::to_string(tile) + " columns";
      AttentionOptions kernel = golden;
      kernel.kv_tile = tile;
      CHECK(c.named(golden, kernel) == Names{"kv_tile: " + text});
      kernel.tile_order = other.tile_order;
      CHECK(c.named(golden, kernel) == Names{"kv_tile_and_order: " + text + " in the other order"});
    }
  }
}

TEST_CASE("attention check: promotion, the format and the factor of P are named both ways",
          "[attention]") {
  const Case c;
  const AttentionOptions plain;
  AttentionOptions two_level;
  two_level.two_level = true;
  CHECK(c.named(plain, two_level) == Names{"promotion: each tile's P V is added to O in FP32"});
  CHECK(c.named(two_level, plain) ==
        Names{"no_promotion: P V accumulates in the tensor core over all tiles"});
  AttentionOptions e5m2;
  e5m2.p_format = FormatId::e5m2;
  e5m2.pv_model = "sm90.wgmma.e5m2.e4m3";
  CHECK(c.named(plain, e5m2) == Names{"p_format: P in e5m2"});
  CHECK(c.named(e5m2, plain) == Names{"p_format: P in e4m3fn"});
  const auto offset = [](float p_offset) {
    AttentionOptions o;
    o.p_offset = p_offset;
    return o;
  };
  for (const float of_kernel : {0.0F, 4.0F, 8.0F})
    for (const float of_golden : {0.0F, 4.0F, 8.0F, 6.0F}) {
      if (of_kernel == of_golden) continue;
      CAPTURE(of_kernel, of_golden);
      CHECK(c.named(offset(of_golden), offset(of_kernel)) ==
            Names{"p_offset: P times 2^" + std::to_string(static_cast<int>(of_kernel))});
    }
}

TEST_CASE("attention check: wrong scales of the softmax are named", "[attention]") {
  const Case c;
  const auto scaled = [](float scale) {
    AttentionOptions o;
    o.softmax_scale = scale;
    return o;
  };
  const AttentionOptions usual;
  const auto root = static_cast<float>(1.0 / std::sqrt(32.0));
  CHECK(c.named(usual, scaled(1.0F)) == Names{"softmax_scale: the softmax without its scale"});
  CHECK(c.named(usual, scaled(1.0F / 32.0F)) ==
        Names{"softmax_scale: 1 / d as the scale of the softmax"});
  CHECK(c.named(scaled(0.25F), usual) ==
        Names{"softmax_scale: 1 / sqrt(d) as the scale of the softmax"});
  CHECK(c.named(usual, scaled(root / std::numbers::log2e_v<float>)) ==
        Names{"log2e: exp2 without log2 e in the scale"});
}

TEST_CASE("attention check: a mistake whose bits differ is named within other roundings alone",
          "[attention]") {
  // The golden outputs are 4, those without V's scale 2. Those checked are 2 + e and 2 - e in turn:
  // e / 2 from the mistake.
  const Means means(0x40, 2.0F);
  const auto distance = [&](float e, double tolerance) {
    std::vector<float> got(kColumns * kColumns, 2.0F + e);
    for (std::size_t i = 1; i < got.size(); i += 2) got[i] = 2.0F - e;
    const AttentionVerdict verdict =
        verify_attention(means.inputs(), {}, got, FormatId::f32, tolerance);
    CHECK_FALSE(verdict.pass);
    for (const AttentionCause& cause : verdict.causes)
      if (cause.name == "missing_scale") {
        CHECK(cause.mismatches == (e == 0.0F ? 0 : kColumns * kColumns));
        return cause.distance;
      }
    return -1.0;
  };
  CHECK(distance(0.0F, 0.0) == 0.0);
  CHECK(distance(0x1p-10F, 0.0) == 0x1p-11);
  CHECK(distance(0x1p-8F, 0.0) == -1.0);
  CHECK(distance(0x1p-8F, 0.002) == 0x1p-9);
  CHECK(distance(0x1p-8F, 0.0019) == -1.0);
}

TEST_CASE("attention check: a tolerance of the whole does not hide a row", "[attention]") {
  const QuantizedHeads q = heads("q", 512);
  const QuantizedHeads k = heads("k", 64);
  const QuantizedHeads v = heads("v", 64);
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  std::vector<float> got = attention(in, {}).o;
  const auto verdict = [&] { return verify_attention(in, {}, got, FormatId::f32, 0.06); };
  std::fill_n(got.begin() + 7 * kColumns, kColumns, 0.0F);
  CHECK(verdict().distance < 0.06);
  CHECK_FALSE(verdict().pass);
  CHECK(verdict().where == "row 7");
  CHECK(verdict().text().find("never_written: the outputs are 0: never written (every bit)") !=
        std::string::npos);
}

TEST_CASE("attention check: what NaN in a part of O come from", "[attention]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto cause = [](const AttentionInputs& in, const AttentionOptions& options,
                        const std::vector<float>& got) {
    const AttentionVerdict verdict = verify_attention(in, options, got, FormatId::f32);
    REQUIRE(verdict.causes.size() == 1);
    return verdict.causes[0].name + ": " + verdict.causes[0].text;
  };
  const QuantizedHeads q = heads("q", 12);
  const QuantizedHeads k = heads("k", 8);
  QuantizedHeads v = heads("v", 8);
  for (std::size_t i = 5; i < v.codes.size(); i += kColumns) v.codes[i] = 0x80;  // -0
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  std::vector<float> got = attention(in, {}).o;
  for (std::size_t i = 5; i < got.size(); i += kColumns) got[i] = kNan;
  CHECK(cause(in, {}, got) ==
        "nan_of_zero_channel: 12 NaN in column 5 of every row of every head, where V is all zeros: "
        "a scale of their own would be 0, and 0 / 0 is NaN");
  got = attention(in, {}).o;
  for (std::size_t i = 6; i < got.size(); i += kColumns) got[i] = kNan;
  CHECK(cause(in, {}, got) == "not_finite: 12 NaN in column 6 of every row of every head");

  AttentionOptions causal;
  causal.causal = true;
  got = attention(in, causal).o;
  std::fill_n(got.begin(), 4 * kColumns, kNan);
  CHECK(
      cause(in, causal, got) ==
      "nan_of_empty_row: 128 NaN in whole rows: head 0, rows 0, 1, 2, 3: rows that see no column, "
      "whose row sum is 0: 0 / 0 is NaN");
  got[4 * kColumns] = std::numeric_limits<float>::infinity();
  CHECK(cause(in, causal, got)
            .find("not_finite: 128 NaN, 1 infinite in head 0, rows 0, 1, 2, 3, 4") == 0);

  // The largest p is 2^9: 512 is no number of E4M3.
  AttentionOptions large;
  large.p_offset = 9.0F;
  got.assign(got.size(), kNan);
  CHECK(cause(in, large, got) ==
        "nan_of_p: 384 NaN in all outputs: P is above the largest number of its format there, and "
        "its cast does not saturate");
}

TEST_CASE("attention check: what no mistake explains is measured", "[attention]") {
  const QuantizedHeads q = heads("q", 64);
  const QuantizedHeads k = heads("k", 256);
  const QuantizedHeads v = heads("v", 256);
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  // Outputs of logits 1.5 times as large, times 2 in even rows and 1/2 in odd ones.
  AttentionOptions other;
  other.softmax_scale = 1.5F / std::sqrt(32.0F);
  std::vector<float> got = attention(in, other).o;
  for (std::size_t i = 0; i < got.size(); ++i) got[i] *= i / kColumns % 2 == 0 ? 2.0F : 0.5F;
  const AttentionVerdict verdict = verify_attention(in, {}, got, FormatId::f32);
  CHECK(verdict.causes.empty());
  CHECK(verdict.text().find("no known mistake explains the difference") != std::string::npos);
  INFO(verdict.text());
  for (const std::string& line : verdict.measured)
    CHECK(line.find("factors of the logits") == std::string::npos);
  // The same factor everywhere is found.
  got = attention(in, other).o;
  for (float& x : got) x *= 3.0F;
  const AttentionVerdict whole = verify_attention(in, {}, got, FormatId::f32);
  INFO(whole.text());
  REQUIRE(whole.measured.size() == 1);
  CHECK_THAT(whole.measured[0], contains("factors of the logits and of the outputs: head 0: 1.5"));
  CHECK(whole.measured[0].ends_with(" and 3"));
}

TEST_CASE("attention check: NaN and infinities of outputs", "[attention]") {
  const auto verdict = [](const Means& means, float got, FormatId output, double tolerance = 0.0) {
    return verify_attention(means.inputs(), {}, std::vector<float>(kColumns * kColumns, got),
                            output, tolerance);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Means nan(0x7f);
  CHECK(verdict(nan, kNan, FormatId::f32).pass);
  CHECK(verdict(nan, -kNan, FormatId::f32).pass);
  CHECK_FALSE(verdict(nan, 1.0F, FormatId::f32).pass);
  // A NaN or an infinity for a number is infinitely far off, whatever the tolerance.
  const Means ones(0x38);
  for (const float got : {kNan, kInf, -kInf}) {
    CAPTURE(got);
    const AttentionVerdict far = verdict(ones, got, FormatId::f32, 1e300);
    CHECK(far.distance == std::numeric_limits<double>::infinity());
    CHECK(far.mismatches == kColumns * kColumns);
    CHECK_FALSE(far.pass);
  }
  // 2^17 overflows FP16 and saturates in FP8; BF16 has it.
  const Means large(0x38, 0x1p17F);
  CHECK(verdict(large, kInf, FormatId::f16).pass);
  CHECK_FALSE(verdict(large, 65504.0F, FormatId::f16).pass);
  CHECK(verdict(large, 448.0F, FormatId::e4m3fn).pass);
  CHECK(verdict(large, 57344.0F, FormatId::e5m2).pass);
  CHECK(verdict(large, 0x1p17F, FormatId::bf16).pass);
  for (const double tolerance :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), -0.5})
    CHECK_THROWS_WITH(verdict(ones, 1.0F, FormatId::f32, tolerance),
                      contains("tolerance: expected 0 (every bit) or more, got "));
}

TEST_CASE("attention: P in E5M2 saturates from halfway between 57344 and 65536 on", "[attention]") {
  const std::vector<std::uint8_t> zero(kColumns * kColumns, 0);
  const AttentionOperand x{FormatId::e5m2, zero, 1, kColumns, kColumns};
  for (const float p : {57000.0F, 58000.0F, 61000.0F, 61400.0F, 61500.0F, 65536.0F}) {
    AttentionOptions options{.qk_model = "sm90.wgmma.e5m2", .pv_model = "sm90.wgmma.e5m2"};
    options.p_format = FormatId::e5m2;
    options.p_offset = std::log2(p);
    const AttentionTile tile = attention({x, x, x}, options).tiles.at(0);
    CAPTURE(p, tile.p_max);
    CHECK(tile.saturated == (p > 61440.0F ? kColumns * kColumns : 0));
  }
}

TEST_CASE("attention: a maximum that grew by exactly the threshold stays stale", "[attention]") {
  // Scores are 0 in the last tile, which comes first, and 1 in the other one.
  std::vector<std::uint8_t> q(4 * kColumns, 0);
  for (std::size_t row = 0; row < 4; ++row) q[row * kColumns] = 0x38;
  std::vector<std::uint8_t> k(2 * kColumns * kColumns, 0);
  for (std::size_t row = 0; row < kColumns; ++row) k[row * kColumns] = 0x38;
  const AttentionInputs in{{FormatId::e4m3fn, q, 1, 4, kColumns},
                           {FormatId::e4m3fn, k, 1, 2 * kColumns, kColumns},
                           {FormatId::e4m3fn, k, 1, 2 * kColumns, kColumns}};
  AttentionOptions options;
  options.kv_tile = kColumns;
  const float step = scale_log2(in, options, 0);
  const auto tile = [&](float threshold) {
    options.rescale_threshold = threshold;
    return attention(in, options).tiles.at(0);
  };
  CHECK((tile(step).stale == 4 && tile(step).rescaled == 0));
  const float less = std::nextafter(step, 0.0F);
  CHECK((tile(less).stale == 0 && tile(less).rescaled == 4));
  CHECK((tile(0.0F).stale == 0 && tile(0.0F).rescaled == 4));
}

TEST_CASE("attention: blocks of rows see all tiles of all their windows", "[attention]") {
  const QuantizedHeads q = heads("q", 70);
  const QuantizedHeads k = heads("k", 90);
  const AttentionInputs in{q.operand(), k.operand(), k.operand()};
  for (const std::int64_t left : {kNoWindow, std::int64_t{0}, std::int64_t{5}})
    for (const std::int64_t right : {kNoWindow, std::int64_t{0}, std::int64_t{7}}) {
      AttentionOptions options;
      options.kv_tile = kColumns;
      options.window_left = left;
      options.window_right = right;
      const AttentionResult whole = attention(in, options);
      options.q_tile = 1;
      const AttentionResult single = attention(in, options);
      CAPTURE(left, right);
      CHECK(whole.o == single.o);
      for (std::size_t i = 0; i < whole.tiles.size(); ++i)
        CHECK(whole.tiles[i].elements == single.tiles[i].elements);
    }
}

TEST_CASE("attention: options reach their limits and no further", "[attention]") {
  const Case c;
  const auto message = [&](const auto& change) -> std::string {
    AttentionOptions o;
    change(o);
    return test::message_of([&] { validate(c.inputs(), o); });
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto q_tile = [&](std::int64_t x) {
    return message([&](AttentionOptions& o) { o.q_tile = x; });
  };
  CHECK(q_tile(kMost) == "accepted");
  CHECK(q_tile(kMost + 1) == "q_tile: expected 1 to 1099511627776, got 1099511627777");
  const auto kv_tile = [&](std::int64_t x) {
    return message([&](AttentionOptions& o) { o.kv_tile = x; });
  };
  const std::string multiple =
      "kv_tile: expected a multiple of sm90.wgmma.e4m3's 32 terms, up to 1099511627776, got ";
  CHECK(kv_tile(kMost) == "accepted");
  CHECK(kv_tile(32) == "accepted");
  CHECK(kv_tile(kMost + 32) == multiple + "1099511627808");
  CHECK(kv_tile(48) == multiple + "48");
  for (const bool left : {true, false}) {
    const auto window = [&](std::int64_t x) {
      return message([&](AttentionOptions& o) { (left ? o.window_left : o.window_right) = x; });
    };
    CAPTURE(left);
    CHECK(window(kMost) == "accepted");
    CHECK(window(0) == "accepted");
    CHECK(window(kNoWindow) == "accepted");
    CHECK(window(kMost + 1) == std::string(left ? "window_left" : "window_right") +
                                   ": expected 0 or more columns, or -1: all, got 1099511627777");
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const bool softmax : {true, false})
    for (const float x : {kInf, std::numeric_limits<float>::quiet_NaN(), -1.0F, 0.0F, 2.0F}) {
      const std::string got = message(
          [&](AttentionOptions& o) { (softmax ? o.softmax_scale : o.rescale_threshold) = x; });
      const std::string name = softmax ? "softmax_scale" : "rescale_threshold";
      CAPTURE(name, x);
      if (x >= 0.0F && x < kInf)
        CHECK(got == "accepted");
      else
        CHECK_THAT(got, contains(name + ": expected a finite number >= 0, got "));
    }
  // Definitions read every format, instructions their own alone.
  for (const char* model : {"exact", "fp32"}) {
    CHECK(message([&](AttentionOptions& o) { o.qk_model = o.pv_model = model; }) == "accepted");
    CHECK(message([&](AttentionOptions& o) {
            o.pv_model = model;
            o.p_format = FormatId::e5m2;
          }) == "accepted");
  }
  CHECK(message([](AttentionOptions& o) { o.p_format = FormatId::e5m2; }) ==
        "pv_model: expected an instruction that reads e5m2 and e4m3fn, got sm90.wgmma.e4m3, which "
        "reads e4m3fn and e4m3fn");
  CHECK(message([](AttentionOptions& o) { o.qk_model = "sm90.wgmma.e4m3.e5m2"; }) ==
        "qk_model: expected an instruction that reads e4m3fn and e4m3fn, got sm90.wgmma.e4m3.e5m2, "
        "which reads e4m3fn and e5m2");
  CHECK(message([](AttentionOptions& o) { o.p_format = FormatId::e4m3fnuz; }) ==
        "p_format: expected e4m3fn or e5m2, got e4m3fnuz");
}

TEST_CASE("attention: inverse scales are counted for each operand", "[attention]") {
  const Case c;
  const std::vector<float> two(2, 1.0F);
  using Member = AttentionOperand AttentionInputs::*;
  for (const auto& [member, name] : {std::pair<Member, std::string>{&AttentionInputs::q, "Q"},
                                     {&AttentionInputs::k, "K"},
                                     {&AttentionInputs::v, "V"}}) {
    AttentionInputs in = c.inputs();
    (in.*member).inverse_scales = two;
    CHECK_THROWS_WITH(validate(in, {}), name + " inverse scales: expected none or 1, got 2");
    (in.*member).inverse_scales = {};
    CHECK_NOTHROW(validate(in, {}));
  }
}

TEST_CASE("attention: tiles are those of the least head size that is enough, or the largest",
          "[attention]") {
  const AttentionCall& call = find_attention_call("flashattention3.fp8");
  struct Tiles {
    std::int64_t d, q, kv;
  };
  for (const Tiles& one :
       {Tiles{1, 192, 160}, Tiles{64, 192, 160}, Tiles{65, 192, 128}, Tiles{96, 192, 128},
        Tiles{97, 128, 224}, Tiles{128, 128, 224}, Tiles{129, 128, 160}, Tiles{192, 128, 160},
        Tiles{193, 128, 128}, Tiles{256, 128, 128}, Tiles{257, 128, 128}, Tiles{512, 128, 128}}) {
    const AttentionOptions o = call.options_for(one.d);
    INFO("head size " << one.d << ": " << o.q_tile << " x " << o.kv_tile);
    CHECK((o.q_tile == one.q && o.kv_tile == one.kv));
    CHECK(o.row_sum == RowSum::quads);
  }
}

TEST_CASE("attention: rows that see nothing are 0 and have no gradients, in FP64 too",
          "[attention]") {
  constexpr std::int64_t kRows = 7;
  constexpr std::int64_t kKeys = 4;
  const QuantizedHeads q = heads("q", kRows);
  const QuantizedHeads k = heads("k", kKeys);
  const AttentionInputs in{q.operand(), k.operand(), k.operand()};
  const std::vector<float> values_q = dequantize(in.q);
  const std::vector<float> values_k = dequantize(in.k);
  AttentionOptions options;
  options.causal = true;
  const std::vector<double> exact = attention_reference(in, values_q, values_k, values_k, options);
  const std::vector<float> o(exact.begin(), exact.end());
  const std::vector<float> ones(o.size(), 1.0F);
  const AttentionGradients g =
      attention_backward(in, values_q, values_k, values_k, o, ones, options);
  for (std::size_t i = 0; i < o.size(); ++i) {
    const bool sees = i / kColumns >= kRows - kKeys;
    INFO("row " << i / kColumns << ": " << o[i] << ", " << g.dq[i]);
    CHECK((o[i] != 0.0F) == sees);
    // A row of one column has a P of 1, whatever its score.
    CHECK((g.dq[i] != 0.0F) <= (i / kColumns > kRows - kKeys));
  }
}

TEST_CASE("attention: floats and gradients of any other size are refused by name", "[attention]") {
  const Case c;
  const AttentionInputs in = c.inputs();
  const std::vector<std::string> names{"q", "k", "v", "o", "d_o"};
  const std::vector<std::size_t> sizes{6 * 32, 300 * 32, 300 * 16, 6 * 16, 6 * 16};
  for (std::size_t wrong = 0; wrong < names.size(); ++wrong)
    for (const bool more : {false, true}) {
      std::vector<std::vector<float>> x;
      for (std::size_t i = 0; i < names.size(); ++i)
        x.emplace_back(i != wrong ? sizes[i] : more ? sizes[i] + 1 : sizes[i] - 1, 1.0F);
      const std::string sized = std::to_string(sizes[wrong]) + " values";
      const std::string got = ", got " + std::to_string(x[wrong].size());
      CHECK_THROWS_WITH(attention_backward(in, x[0], x[1], x[2], x[3], x[4], {}),
                        names[wrong] + ": expected " + sized + got);
      if (wrong < 3)
        CHECK_THROWS_WITH(attention_reference(in, x[0], x[1], x[2], {}),
                          names[wrong] + ": expected " + sized + ", as codes" + got);
    }
}

TEST_CASE("inverse scales of heads are one for all or one for each", "[attention]") {
  using Values = std::vector<float>;
  CHECK(inverse_scales_of_heads("scale_q", {2.0F}, 3) == Values{2.0F, 2.0F, 2.0F});
  CHECK(inverse_scales_of_heads("scale_q", {1.0F, 2.0F, 3.0F}, 3) == Values{1.0F, 2.0F, 3.0F});
  for (const std::size_t count : {std::size_t{2}, std::size_t{4}})
    CHECK_THROWS_WITH(inverse_scales_of_heads("scale_q", Values(count, 1.0F), 3),
                      "scale_q: expected 1 or 3 inverse scales, got " + std::to_string(count));
  CHECK_THROWS_WITH(inverse_scales_of_heads("scale_q", {1.0F, 2.0F}, 1),
                    "scale_q: expected 1 inverse scale, got 2");
}
