// Several heads that are unlike each other, and every mask that a kernel may have in place of its
// own.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kWidth = 32;

/// Head h is 2^h * (1 + h/4) times as large as the first.
std::vector<float> unlike_heads(const char* name, std::int64_t heads, std::int64_t rows) {
  const RandomStream stream(11, name);
  std::vector<float> x;
  for (std::int64_t i = 0; i < heads * rows * kWidth; ++i) {
    const auto head = static_cast<double>(i / (rows * kWidth));
    x.push_back(static_cast<float>(std::exp2(head) * (1.0 + head / 4.0) *
                                   stream.normal(static_cast<std::uint64_t>(i))));
  }
  return x;
}

AttentionOperand head_of(const QuantizedHeads& all, std::size_t head) {
  const auto size = static_cast<std::size_t>(all.rows * all.columns);
  return {FormatId::e4m3fn, std::span(all.codes).subspan(head * size, size), 1, all.rows,
          all.columns,      std::span(all.inverse_scales).subspan(head, 1)};
}

QuantizedHeads quantized_unlike(const char* name, std::int64_t heads, std::int64_t rows) {
  return quantize_heads(unlike_heads(name, heads, rows), heads, rows, kWidth);
}

/// The cause that explains every mismatch, of which there are some.
std::string named_cause(const AttentionVerdict& verdict) {
  CHECK(verdict.mismatches > 0);
  for (const AttentionCause& cause : verdict.causes)
    if (cause.mismatches == 0) return cause.name + ": " + cause.text;
  return "not named";
}

}  // namespace

TEST_CASE("attention: each head is quantized with its own scale", "[attention]") {
  constexpr std::size_t kHeads = 4;
  const std::vector<float> values = unlike_heads("x", kHeads, 24);
  const QuantizedHeads all = quantize_heads(values, kHeads, 24, kWidth);
  REQUIRE(all.inverse_scales.size() == kHeads);
  const std::size_t size = 24 * kWidth;
  for (std::size_t head = 0; head < kHeads; ++head) {
    INFO("head " << head);
    const QuantizedHeads alone =
        quantize_heads(std::span(values).subspan(head * size, size), 1, 24, kWidth);
    CHECK(all.inverse_scales[head] == alone.inverse_scales[0]);
    CHECK(std::equal(alone.codes.begin(), alone.codes.end(),
                     all.codes.begin() + static_cast<std::ptrdiff_t>(head * size)));
    CHECK(std::count(all.inverse_scales.begin(), all.inverse_scales.end(),
                     all.inverse_scales[head]) == 1);
  }
}

TEST_CASE("attention: too few and too many values of heads are refused", "[attention]") {
  const std::vector<float> values = unlike_heads("x", 2, 3);
  for (const std::int64_t rows : {2, 4})
    CHECK_THROWS_WITH(quantize_heads(values, 2, rows, kWidth),
                      contains("values: expected [2, " + std::to_string(rows) + ", 32] values"));
  CHECK_THROWS_AS(quantize_heads(values, 1, 3, kWidth), Error);
  CHECK_THROWS_AS(quantize_heads(values, 2, 3, kWidth - 1), Error);
  CHECK_THROWS_AS(quantize_heads(values, 2, 3, kWidth + 1), Error);
  CHECK_NOTHROW(quantize_heads(values, 2, 3, kWidth));
}

TEST_CASE("attention: outputs and counts of heads are those of each head alone, together",
          "[attention]") {
  constexpr std::size_t kHeads = 3;
  constexpr std::int64_t kM = 40;
  constexpr std::int64_t kN = 70;
  const QuantizedHeads q = quantized_unlike("q", kHeads, kM);
  const QuantizedHeads k = quantized_unlike("k", kHeads, kN);
  const QuantizedHeads v = quantized_unlike("v", kHeads, kN);
  AttentionOptions options;
  options.kv_tile = 32;
  options.q_tile = 16;
  options.p_offset = 8;
  options.rescale_threshold = 4;
  const AttentionResult all = attention({q.operand(), k.operand(), v.operand()}, options);
  std::vector<float> o;
  std::vector<AttentionTile> tiles;
  for (std::size_t head = 0; head < kHeads; ++head) {
    const AttentionResult alone =
        attention({head_of(q, head), head_of(k, head), head_of(v, head)}, options);
    o.insert(o.end(), alone.o.begin(), alone.o.end());
    if (head == 0) tiles = alone.tiles;
    for (std::size_t t = 0; head > 0 && t < tiles.size(); ++t) {
      tiles[t].elements += alone.tiles[t].elements;
      tiles[t].saturated += alone.tiles[t].saturated;
      tiles[t].underflowed += alone.tiles[t].underflowed;
      tiles[t].rescaled += alone.tiles[t].rescaled;
      tiles[t].stale += alone.tiles[t].stale;
      tiles[t].p_max = std::max(tiles[t].p_max, alone.tiles[t].p_max);
    }
  }
  CHECK(all.o == o);
  REQUIRE(all.tiles.size() == tiles.size());
  std::uint64_t seen = 0;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    INFO("tile " << t);
    CHECK(all.tiles[t].elements == tiles[t].elements);
    CHECK(all.tiles[t].saturated == tiles[t].saturated);
    CHECK(all.tiles[t].underflowed == tiles[t].underflowed);
    CHECK(all.tiles[t].rescaled == tiles[t].rescaled);
    CHECK(all.tiles[t].stale == tiles[t].stale);
    CHECK(all.tiles[t].p_max == tiles[t].p_max);
    seen += all.tiles[t].elements;
  }
  CHECK(seen == kHeads * kM * kN);
  std::uint64_t stale = 0;
  for (const AttentionTile& tile : all.tiles) stale += tile.stale;
  CHECK(stale > 0);
}

TEST_CASE("attention check: a kernel with another mask is named by it", "[attention]") {
  constexpr std::int64_t kM = 24;
  constexpr std::int64_t kN = 36;
  const QuantizedHeads q = quantized_unlike("q", 1, kM);
  const QuantizedHeads k = quantized_unlike("k", 1, kN);
  const QuantizedHeads v = quantized_unlike("v", 1, kN);
  const AttentionInputs in{q.operand(), k.operand(), v.operand()};
  const auto masked = [](std::int64_t left, std::int64_t right) {
    AttentionOptions options;
    options.kv_tile = 32;
    options.window_left = left;
    options.window_right = right;
    return options;
  };
  using Window = std::pair<std::int64_t, std::int64_t>;
  const auto name_of = [&](Window golden, Window kernel) {
    const std::vector<float> got = attention(in, masked(kernel.first, kernel.second)).o;
    const AttentionVerdict verdict =
        verify_attention(in, masked(golden.first, golden.second), got, FormatId::f32);
    return named_cause(verdict);
  };
  constexpr std::int64_t kAll = -1;
  CHECK(name_of({kAll, kAll}, {kAll, 0}) == "mask: a causal mask");
  for (const std::int64_t right : {0, 1, 3}) {
    INFO("right " << right);
    CHECK(name_of({kAll, right}, {kAll, kAll}) == "no_mask: no mask");
    CHECK(name_of({kAll, right}, {kAll, right + 1}) ==
          "mask_off_by_one: one column too many on the right");
    if (right > 0)
      CHECK(name_of({kAll, right}, {kAll, right - 1}) ==
            "mask_off_by_one: one column too few on the right");
    const std::string own = std::to_string(right + kN - kM);
    CHECK(
        name_of({kAll, right + kN - kM}, {kAll, right}) ==
        "mask_alignment: the mask starts in the upper left corner: row i sees columns up to i + " +
            own + ", not i + n - m + " + own);
    CHECK(name_of({8, right}, {8, right + 5}) == "mask: row i sees columns up to i + n - m + " +
                                                     std::to_string(right + 5) + " (measured)");
  }
  for (const std::int64_t left : {0, 1, 3}) {
    INFO("left " << left);
    CHECK(name_of({left, 2}, {left + 1, 2}) == "mask_off_by_one: one column too many on the left");
    if (left > 0)
      CHECK(name_of({left, 2}, {left - 1, 2}) == "mask_off_by_one: one column too few on the left");
  }
}

TEST_CASE("attention check: a kernel whose heads read the wrong KV head or scale is named by it",
          "[attention]") {
  constexpr std::size_t kHeads = 4;
  constexpr std::size_t kKvHeads = 2;
  constexpr std::int64_t kM = 5;
  constexpr std::int64_t kN = 40;
  const QuantizedHeads q = quantized_unlike("q", kHeads, kM);
  const QuantizedHeads k = quantized_unlike("k", kKvHeads, kN);
  const QuantizedHeads v = quantized_unlike("v", kKvHeads, kN);
  const AttentionInputs golden{q.operand(), k.operand(), v.operand()};
  AttentionOptions options;
  options.kv_tile = 32;
  const auto name_of = [&](const AttentionInputs& kernel) {
    const std::vector<float> got = attention(kernel, options).o;
    const AttentionVerdict verdict = verify_attention(golden, options, got, FormatId::f32);
    return named_cause(verdict);
  };
  // Four KV heads, each with the codes and the scale of one of the two.
  const auto in_turn = [](const QuantizedHeads& x) {
    const auto size = static_cast<std::size_t>(x.rows * x.columns);
    QuantizedHeads all{kHeads, x.rows, x.columns, {}, {}};
    for (std::size_t head = 0; head < kHeads; ++head) {
      const auto begin = x.codes.begin() + static_cast<std::ptrdiff_t>(head % kKvHeads * size);
      all.codes.insert(all.codes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
      all.inverse_scales.push_back(x.inverse_scales[head % kKvHeads]);
    }
    return all;
  };
  const QuantizedHeads turned_k = in_turn(k);
  const QuantizedHeads turned_v = in_turn(v);
  CHECK(name_of({q.operand(), turned_k.operand(), turned_v.operand()}) ==
        "head_mapping: head h reads KV head h mod kv_heads");

  using Member = AttentionOperand AttentionInputs::*;
  for (const auto& [member, name] : {std::pair<Member, std::string>{&AttentionInputs::q, "Q"},
                                     {&AttentionInputs::k, "K"},
                                     {&AttentionInputs::v, "V"}}) {
    AttentionInputs kernel = golden;
    (kernel.*member).inverse_scales = {};
    CHECK(name_of(kernel) == "missing_scale: the scales of " + name + " left out");
    const std::vector<float> scales((golden.*member).inverse_scales.size(),
                                    (golden.*member).inverse_scales[0]);
    (kernel.*member).inverse_scales = scales;
    CHECK(name_of(kernel) == "scale_of_head: the scale of " + name + "'s first head for all heads");
  }
}
