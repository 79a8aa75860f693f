#include "fp8lab/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/attention/calls.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/metrics/comparison.hpp"

using namespace fp8lab;

namespace {

/// Normal Q, K and V; Q is scaled so that softmax_scale * Q K^T has this deviation in the first
/// head. Each head is `unlike` times as large as the one before it.
struct Problem {
  QuantizedHeads q;
  QuantizedHeads k;
  QuantizedHeads v;

  Problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t m, std::int64_t n, std::int64_t d,
          double deviation, double unlike = 1.0)
      : q(draw("q", heads, m, d, deviation, unlike)),
        k(draw("k", kv_heads, n, d, 1.0, unlike)),
        v(draw("v", kv_heads, n, d, 1.0, unlike)) {}

  [[nodiscard]] AttentionInputs inputs() const { return {q.operand(), k.operand(), v.operand()}; }
  [[nodiscard]] Comparison error(const AttentionOptions& options) const {
    const AttentionInputs in = inputs();
    return compare(
        attention_reference(in, dequantize(in.q), dequantize(in.k), dequantize(in.v), options),
        attention(in, options).o);
  }

 private:
  static QuantizedHeads draw(const std::string& name, std::int64_t heads, std::int64_t rows,
                             std::int64_t columns, double deviation, double unlike) {
    const RandomStream stream(1, name);
    std::vector<float> values;
    for (std::int64_t i = 0; i < heads * rows * columns; ++i) {
      const double size = deviation * std::pow(unlike, static_cast<double>(i / (rows * columns)));
      values.push_back(static_cast<float>(size * stream.normal(static_cast<std::uint64_t>(i))));
    }
    return quantize_heads(values, heads, rows, columns);
  }
};

std::uint64_t saturated(const AttentionResult& result) {
  std::uint64_t count = 0;
  for (const AttentionTile& tile : result.tiles) count += tile.saturated;
  return count;
}

/// One row of one head by scalar dot products: the specification in attention.hpp.
std::vector<float> specified_row(const AttentionInputs& in, const AttentionOptions& o,
                                 std::int64_t head, std::int64_t row) {
  const Format& f = format(FormatId::e4m3fn);
  const AccumulatorModel& model = find_instruction_model(o.pv_model).accumulator;
  const std::int64_t n = in.k.rows;
  const std::int64_t d = in.q.columns;
  const std::int64_t kv_head = head / (in.q.heads / in.k.heads);
  const auto head_of = [&](const AttentionOperand& x) { return &x == &in.q ? head : kv_head; };
  const auto unpacked = [&](const AttentionOperand& x, std::int64_t r, std::int64_t c) {
    return unpack(f, x.codes[static_cast<std::size_t>((head_of(x) * x.rows + r) * x.columns + c)]);
  };
  const auto scale_of = [&](const AttentionOperand& x) {
    return x.inverse_scales[static_cast<std::size_t>(head_of(x))];
  };
  const auto softmax = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  const float scale = static_cast<float>(static_cast<double>(softmax) * 1.4426950408889634) *
                      (scale_of(in.q) * scale_of(in.k));
  const auto exp2 = [](float x) { return static_cast<float>(std::exp2(double{x})); };
  std::vector<float> out(static_cast<std::size_t>(in.v.columns), 0.0F);
  float maximum = -INFINITY;
  std::vector<float> sums(4, 0.0F);
  for (std::int64_t begin = (n - 1) / o.kv_tile * o.kv_tile; begin >= 0; begin -= o.kv_tile) {
    const std::int64_t end = std::min(n, begin + o.kv_tile);
    std::vector<float> s;
    for (std::int64_t j = begin; j < end; ++j) {
      std::vector<Unpacked> a;
      std::vector<Unpacked> b;
      for (std::int64_t i = 0; i < d; ++i) {
        a.push_back(unpacked(in.q, row, i));
        b.push_back(unpacked(in.k, j, i));
      }
      s.push_back(dot_product(model, a, b));
    }
    float grown = maximum;
    for (const float x : s) grown = std::max(grown, x);
    const float step = (maximum - grown) * scale;
    const bool stale = o.rescale_threshold > 0.0F && step >= -o.rescale_threshold;
    if (grown > maximum && !stale) {
      for (float& x : sums) x *= exp2(step);
      for (float& x : out) x *= exp2(step);
      maximum = grown;
    }
    std::vector<Unpacked> p;
    std::vector<float> of_tile(4, 0.0F);
    for (const float x : s) {
      const float value = exp2(std::fma(x, scale, std::fma(-maximum, scale, o.p_offset)));
      const std::size_t thread = p.size() % 8 / 2;  // two neighbours of each eight columns
      (o.row_sum == RowSum::quads ? of_tile[thread] : sums[0]) += value;
      p.push_back(unpack(f, encode(f, kNvidiaSatfinite, value)));
    }
    for (std::size_t t = 0; t < 4; ++t) sums[t] += of_tile[t];
    for (std::size_t c = 0; c < out.size(); ++c) {
      std::vector<Unpacked> column;
      for (std::int64_t j = begin; j < end; ++j)
        column.push_back(unpacked(in.v, j, static_cast<std::int64_t>(c)));
      out[c] = o.two_level ? out[c] + dot_product(model, p, column)
                           : dot_product(model, p, column, out[c]);
    }
  }
  const float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  for (float& x : out) x *= 1.0F / sum * scale_of(in.v);
  return out;
}

}  // namespace

TEST_CASE("attention: the bits of the specification, row by row", "[attention]") {
  // Tiles of two instructions, heads whose scales differ.
  const Problem problem(4, 2, 3, 100, 32, 2.0, 1.5);
  const AttentionInputs in = problem.inputs();
  for (const bool two_level : {false, true})
    for (const float threshold : {0.0F, 4.0F})
      for (const float offset : {0.0F, 8.0F}) {
        AttentionOptions options;
        options.kv_tile = 64;
        options.two_level = two_level;
        options.rescale_threshold = threshold;
        options.p_offset = offset;
        options.row_sum = two_level ? RowSum::columns : RowSum::quads;
        const std::vector<float> o = attention(in, options).o;
        for (std::int64_t i = 0; i < 4 * 3; ++i) {
          const std::vector<float> expected = specified_row(in, options, i / 3, i % 3);
          for (std::size_t c = 0; c < expected.size(); ++c) {
            INFO("head " << i / 3 << " row " << i % 3 << " column " << c << ", two_level "
                         << two_level << ", threshold " << threshold << ", offset " << offset);
            CHECK(std::bit_cast<std::uint32_t>(o[static_cast<std::size_t>(i) * 32 + c]) ==
                  std::bit_cast<std::uint32_t>(expected[c]));
          }
        }
      }
}

TEST_CASE("attention: P saturates from halfway between 448 and 480 on", "[attention]") {
  // Equal scores: every p is 2^p_offset, which no other rounding touches.
  const auto counts = [](float p) {
    AttentionOptions options;
    options.p_offset = std::log2(p);
    const std::vector<std::uint8_t> zero(32 * 32, 0);
    const std::array<float, 1> one{1.0F};
    const AttentionOperand x{FormatId::e4m3fn, zero, 1, 32, 32, one};
    const AttentionResult result = attention({x, x, x}, options);
    return std::pair(saturated(result), result.tiles[0].p_max);
  };
  for (const float p : {440.0F, 456.0F, 463.0F, 465.0F, 472.0F, 480.0F}) {
    const auto [count, largest] = counts(p);
    INFO("p " << p << " became " << largest);
    CHECK(std::abs(largest / p - 1.0F) < 1e-6F);
    CHECK(count == (p > 464.0F ? 32 * 32 : 0));
  }
}

TEST_CASE("attention: near FP64 with heads, groups, tiles and a causal mask", "[attention]") {
  const Problem problem(4, 2, 150, 200, 64, 1.0);
  for (const bool causal : {false, true}) {
    AttentionOptions options;
    options.causal = causal;
    options.kv_tile = 64;
    options.q_tile = 64;
    const Comparison error = problem.error(options);
    INFO("causal " << causal << ", relative L2 " << error.relative_l2);
    CHECK(error.relative_l2 < 0.04);  // P has 3 mantissa bits
    CHECK(error.relative_l2 > 0.005);
  }
}

TEST_CASE("attention: threads and query blocks do not change what they need not", "[attention]") {
  const Problem problem(2, 1, 70, 96, 32, 1.0);
  AttentionOptions options;
  options.kv_tile = 32;
  options.threads = 1;
  const AttentionResult one = attention(problem.inputs(), options);
  options.threads = 3;
  options.q_tile = 16;
  const AttentionResult other = attention(problem.inputs(), options);
  CHECK(one.o == other.o);
  for (std::size_t i = 0; i < one.tiles.size(); ++i) {
    CHECK(one.tiles[i].elements == other.tiles[i].elements);
    CHECK(one.tiles[i].rescaled == other.tiles[i].rescaled);
    CHECK(one.tiles[i].p_max == other.tiles[i].p_max);
  }
}

TEST_CASE("attention: a stale maximum saturates P where offset and threshold leave E4M3",
          "[attention]") {
  const Problem problem(1, 1, 64, 2048, 64, 2.0);
  AttentionOptions options;
  options.pv_model = "sm100.tcgen05.e4m3";
  options.qk_model = "sm100.tcgen05.e4m3";
  const auto run = [&](float offset, float threshold) {
    options.p_offset = offset;
    options.rescale_threshold = threshold;
    return std::pair{saturated(attention(problem.inputs(), options)),
                     problem.error(options).relative_l2};
  };
  const auto [none, fresh] = run(8.0F, 0.0F);
  const auto [many, clipped] = run(8.0F, 4.0F);
  const auto [held, lower] = run(4.0F, 4.0F);
  CHECK(none == 0);
  CHECK(fresh < 0.04);
  CHECK(many > 0);
  CHECK(clipped > 0.1);
  CHECK(held == 0);
  CHECK(lower < 0.04);
}

TEST_CASE("attention: the offset lifts small P out of underflow", "[attention]") {
  const Problem problem(1, 1, 32, 1024, 64, 3.0);
  AttentionOptions options;
  const auto underflowed = [&](float offset) {
    options.p_offset = offset;
    std::uint64_t count = 0;
    for (const AttentionTile& tile : attention(problem.inputs(), options).tiles)
      count += tile.underflowed;
    return count;
  };
  CHECK(underflowed(8.0F) * 2 < underflowed(0.0F));
}

TEST_CASE("attention: rows that see nothing are zero, counts leave hidden elements out",
          "[attention]") {
  const Problem problem(1, 1, 40, 32, 32, 1.0);
  AttentionOptions options;
  options.causal = true;
  options.kv_tile = 32;
  const AttentionResult result = attention(problem.inputs(), options);
  for (std::size_t i = 0; i < 8 * 32; ++i) CHECK(result.o[i] == 0.0F);
  CHECK(result.o[8 * 32] != 0.0F);
  CHECK(result.tiles[0].elements == 32 * 33 / 2);
}

TEST_CASE("attention: a backend is asked for every product and cast, and its results count",
          "[attention]") {
  const Problem problem(2, 1, 40, 300, 64, 2.0);
  AttentionOptions options;
  options.q_tile = 32;
  const std::vector<float> expected = attention(problem.inputs(), options).o;
  std::atomic<int> products = 0;
  std::atomic<int> casts = 0;
  bool computes = false;
  options.backend = {
      "asked",
      [&](const GemmProblem& p, std::span<float> d, int threads) {
        ++products;
        if (computes) gemm(p, d, threads);
        return computes;
      },
      [&](FormatId, const CastPolicy&, std::span<const float>, std::span<std::uint8_t> codes) {
        ++casts;
        if (computes) std::ranges::fill(codes, std::uint8_t{0});
        return computes;
      }};
  CHECK(attention(problem.inputs(), options).o == expected);
  // Two heads, two blocks of rows, three tiles of columns: Q K^T and P V of each.
  CHECK(products == 2 * 2 * 3 * 2);
  CHECK(casts == 2 * 2 * 3);
  computes = true;  // products as they are, and P all zeros
  const std::vector<float> zeros(expected.size());
  CHECK(attention(problem.inputs(), options).o == zeros);
}

TEST_CASE("attention: what does not fit is refused", "[attention]") {
  const Problem problem(2, 1, 8, 32, 32, 1.0);
  AttentionInputs in = problem.inputs();
  AttentionOptions options;
  options.kv_tile = 48;
  CHECK_THROWS_WITH(attention(in, options), contains("kv_tile"));
  options.kv_tile = 64;
  options.qk_model = "sm90.wgmma.e5m2";
  CHECK_THROWS_WITH(attention(in, options), contains("qk_model"));
  options.qk_model = options.pv_model;
  options.rescale_threshold = -1.0F;
  CHECK_THROWS_WITH(attention(in, options), contains("rescale_threshold"));
  options.rescale_threshold = 0.0F;
  in.v.rows = 16;
  in.v.columns = 64;
  CHECK_THROWS_WITH(attention(in, options), contains("V: expected"));
  in = problem.inputs();
  in.k.heads = 3;
  CHECK_THROWS_WITH(attention(in, options), contains("K: expected codes"));
}

TEST_CASE("attention: codes of 16 bits are refused", "[attention]") {
  const std::vector<std::uint8_t> codes(64);
  AttentionInputs in;
  in.q = in.k = in.v = {FormatId::e4m3fn, codes, 1, 4, 16, {}};
  for (AttentionOperand* operand : {&in.q, &in.k, &in.v}) {
    AttentionOperand& other = *operand;
    other.format = FormatId::bf16;
    CHECK_THROWS_WITH(attention(in, {}), contains("expected codes of an 8-bit format, got bf16"));
    other.format = FormatId::e4m3fn;
  }
}

TEST_CASE("attention: the text of a verdict", "[attention]") {
  AttentionVerdict verdict;
  verdict.outputs = 40;
  verdict.mismatches = 3;
  verdict.distance = 0.25;
  verdict.causes = {{"one", "a mistake", 0, 0.0}, {"two", "another", 2, 0.125}};
  CHECK(verdict.text() ==
        "mismatch: 3 of 40 outputs differ in bits (7.5 %), relative L2 distance 0.25\n"
        "  cause: one: a mistake (every bit)\n"
        "  cause: two: another (distance 0.125, 2 outputs still differ)\n");
  verdict.causes.clear();
  CHECK(verdict.text() ==
        "mismatch: 3 of 40 outputs differ in bits (7.5 %), relative L2 distance 0.25\n"
        "  no known mistake explains the difference\n");
  verdict.pass = true;
  CHECK(verdict.text() ==
        "pass: 3 of 40 outputs differ in bits (7.5 %), relative L2 distance 0.25\n");
}

TEST_CASE("heads without elements are refused before anything reads them", "[attention]") {
  for (const auto& [heads, rows, columns] :
       {std::array<std::int64_t, 3>{0, 4, 16}, {1, 0, 16}, {1, 4, 0}}) {
    CAPTURE(heads, rows, columns);
    CHECK_THROWS_WITH(quantize_heads({}, heads, rows, columns),
                      contains("values: expected [heads, rows, columns], all above 0"));
    AttentionInputs in;
    in.q = in.k = in.v = {FormatId::e4m3fn, {}, heads, rows, columns, {}};
    CHECK_THROWS_WITH(attention(in, {}), contains("Q: expected [heads, rows, columns]"));
  }
}

TEST_CASE("options that overflow are refused", "[attention]") {
  const Problem problem(1, 1, 4, 32, 32, 1.0);
  const auto refuse = [&](const AttentionOptions& options, const std::string& message) {
    CHECK_THROWS_WITH(attention(problem.inputs(), options), contains(message));
  };
  refuse({.q_tile = std::numeric_limits<std::int64_t>::max()}, "q_tile: expected 1 to");
  refuse({.kv_tile = std::int64_t{1} << 60}, "kv_tile: expected a multiple of");
  refuse({.p_offset = 1e30F}, "p_offset: expected a number from -100 to 100");
  refuse({.p_offset = std::numeric_limits<float>::quiet_NaN()}, "p_offset");
  refuse({.threads = 1'000'000}, "threads: expected 0 (all) to 4096, got 1000000");
}

TEST_CASE("attention: calls by name have the tiles of their head size", "[attention]") {
  const AttentionCall& call = find_attention_call("flashattention3.fp8");
  const auto tiles = [&](std::int64_t d) {
    const AttentionOptions o = call.options_for(d);
    return std::pair{o.q_tile, o.kv_tile};
  };
  CHECK(tiles(64) == std::pair<std::int64_t, std::int64_t>{192, 160});
  CHECK(tiles(80) == std::pair<std::int64_t, std::int64_t>{192, 128});
  CHECK(tiles(128) == std::pair<std::int64_t, std::int64_t>{128, 224});
  CHECK(tiles(192) == std::pair<std::int64_t, std::int64_t>{128, 160});
  CHECK(tiles(256) == std::pair<std::int64_t, std::int64_t>{128, 128});
  CHECK(call.options.row_sum == RowSum::quads);
  CHECK(call.options.kv_tile == call.options_for(128).kv_tile);
  const AttentionCall& triton = find_attention_call("triton.tutorial.fp8");
  CHECK(triton.options_for(64).kv_tile == triton.options.kv_tile);
  CHECK(find_row_sum("quads") == RowSum::quads);
  CHECK_THROWS_WITH(find_row_sum("rows"), contains("columns"));
}
