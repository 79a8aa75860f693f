// All options of attention drawn at once, against the specification in attention.hpp written down
// once more: outputs row by row and the counts of every tile.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

/// Codes [heads, rows, columns] and the scales of their heads.
struct AnyOperand {
  FormatId format;
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  AnyOperand(std::string_view name, std::uint64_t seed, FormatId id, std::array<std::int64_t, 3> of,
             bool scaled, double size)
      : format(id), heads(of[0]), rows(of[1]), columns(of[2]) {
    const RandomStream draws(seed, name);
    for (std::int64_t i = 0; i < heads * rows * columns; ++i)
      codes.push_back(static_cast<std::uint8_t>(
          encode(fp8lab::format(id), kNvidiaSatfinite,
                 static_cast<float>(size * draws.normal(static_cast<std::uint64_t>(i))))));
    for (std::int64_t i = 0; scaled && i < heads; ++i)
      scales.push_back(0.5F + 0.3F * static_cast<float>(i + 1));
  }
  [[nodiscard]] AttentionOperand view() const {
    return {format, codes, heads, rows, columns, scales};
  }
  [[nodiscard]] Unpacked at(std::int64_t head, std::int64_t row, std::int64_t column) const {
    return unpack(fp8lab::format(format),
                  codes[static_cast<std::size_t>((head * rows + row) * columns + column)]);
  }
  [[nodiscard]] float scale(std::int64_t head) const {
    return scales.empty() ? 1.0F : scales[static_cast<std::size_t>(head)];
  }
};

/// One row after the other.
class Specified {
 public:
  Specified(const AnyOperand& q, const AnyOperand& k, const AnyOperand& v,
            const AttentionOptions& options)
      : q_(q), k_(k), v_(v), o_(options) {
    for (std::int64_t begin = 0; begin < k.rows; begin += o_.kv_tile)
      tiles.push_back({.begin = begin, .end = std::min(begin + o_.kv_tile, k.rows)});
  }

  std::vector<AttentionTile> tiles;

  std::vector<float> row(std::int64_t head, std::int64_t row) {
    const std::int64_t kv = head / (q_.heads / k_.heads);
    const float softmax =
        o_.softmax_scale > 0.0F
            ? o_.softmax_scale
            : static_cast<float>(1.0 / std::sqrt(static_cast<double>(q_.columns)));
    const float scale = static_cast<float>(static_cast<double>(softmax) * 1.4426950408889634) *
                        (q_.scale(head) * k_.scale(kv));
    std::vector<float> out(static_cast<std::size_t>(v_.columns), 0.0F);
    std::array<float, 4> sums{};
    float maximum = kHidden;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      AttentionTile& tile =
          tiles[o_.tile_order == TileOrder::last_to_first ? tiles.size() - 1 - i : i];
      if (!block_sees(row, tile)) continue;
      const std::vector<float> s = scores(head, kv, row, tile);
      const float grown = std::max(maximum, *std::max_element(s.begin(), s.end()));
      if (grown > maximum) {
        const float step = (maximum - grown) * scale;
        if (o_.rescale_threshold > 0.0F && step >= -o_.rescale_threshold) {
          ++tile.stale;
        } else {
          if (maximum != kHidden) {
            ++tile.rescaled;
            for (float& x : sums) x *= power(step);
            for (float& x : out) x *= power(step);
          }
          maximum = grown;
        }
      }
      const float shift = std::fma(maximum == kHidden ? -0.0F : -maximum, scale, o_.p_offset);
      std::array<float, 4> of_tile{};
      std::vector<Unpacked> p;
      for (std::size_t j = 0; j < s.size(); ++j) {
        const float x = power(std::fma(s[j], scale, shift));
        if (o_.row_sum == RowSum::quads)
          of_tile[j % 8 / 2] += x;
        else
          sums[0] += x;
        const std::uint32_t code = encode(format(o_.p_format), kNvidiaSatfinite, x);
        p.push_back(unpack(format(o_.p_format), code));
        if (sees(row, tile.begin + static_cast<std::int64_t>(j))) count(x, code, tile);
      }
      if (o_.row_sum == RowSum::quads)
        for (std::size_t t = 0; t < 4; ++t) sums[t] += of_tile[t];
      add_values(kv, tile, p, out);
    }
    const float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    for (float& x : out) x *= (sum == 0.0F ? 0.0F : 1.0F / sum) * v_.scale(kv);
    return out;
  }

 private:
  static float power(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }
  [[nodiscard]] bool sees(std::int64_t row, std::int64_t column) const {
    const std::int64_t own = row + k_.rows - q_.rows;
    const std::int64_t right = o_.causal ? 0 : o_.window_right;
    if (right != kNoWindow && column > own + right) return false;
    return o_.window_left == kNoWindow || column >= own - o_.window_left;
  }
  /// Whether any row of the row's block sees a column of the tile.
  [[nodiscard]] bool block_sees(std::int64_t row, const AttentionTile& tile) const {
    const std::int64_t begin = row / o_.q_tile * o_.q_tile;
    for (std::int64_t r = begin; r < std::min(begin + o_.q_tile, q_.rows); ++r)
      for (std::int64_t c = tile.begin; c < tile.end; ++c)
        if (sees(r, c)) return true;
    return false;
  }
  [[nodiscard]] std::vector<float> scores(std::int64_t head, std::int64_t kv, std::int64_t row,
                                          const AttentionTile& tile) const {
    const AccumulatorModel& model = find_instruction_model(o_.qk_model).accumulator;
    std::vector<float> s;
    for (std::int64_t j = tile.begin; j < tile.end; ++j) {
      std::vector<Unpacked> a;
      std::vector<Unpacked> b;
      for (std::int64_t i = 0; i < q_.columns; ++i) {
        a.push_back(q_.at(head, row, i));
        b.push_back(k_.at(kv, j, i));
      }
      s.push_back(sees(row, j) ? dot_product(model, a, b) : kHidden);
    }
    return s;
  }
  void add_values(std::int64_t kv, const AttentionTile& tile, const std::vector<Unpacked>& p,
                  std::vector<float>& out) const {
    const AccumulatorModel& model = find_instruction_model(o_.pv_model).accumulator;
    for (std::size_t c = 0; c < out.size(); ++c) {
      std::vector<Unpacked> column;
      for (std::int64_t j = tile.begin; j < tile.end; ++j)
        column.push_back(v_.at(kv, j, static_cast<std::int64_t>(c)));
      out[c] = o_.two_level ? out[c] + dot_product(model, p, column)
                            : dot_product(model, p, column, out[c]);
    }
  }
  void count(float p, std::uint32_t code, AttentionTile& tile) const {
    const Format& f = format(o_.p_format);
    ++tile.elements;
    // What would have rounded beyond the largest number under an unbounded exponent.
    const double largest = f.max_finite();
    const double next = largest + std::ldexp(1.0, std::ilogb(largest) - f.mantissa_bits);
    const double middle = (largest + next) / 2.0;
    const bool up = o_.p_format == FormatId::e5m2;  // whose largest number is odd
    if (static_cast<double>(p) > middle || (up && static_cast<double>(p) == middle))
      ++tile.saturated;
    if (p > 0.0F && code == 0) ++tile.underflowed;
    tile.p_max = std::max(tile.p_max, p);
  }

  const AnyOperand& q_;
  const AnyOperand& k_;
  const AnyOperand& v_;
  const AttentionOptions& o_;
};

std::string text_of_tile(const AttentionTile& t) {
  return fmt::format(
      "[{}, {}): {} elements, {} saturated, {} underflowed, {} rescaled, {} stale, "
      "p up to {:a}",
      t.begin, t.end, t.elements, t.saturated, t.underflowed, t.rescaled, t.stale, t.p_max);
}

}  // namespace

TEST_CASE("attention: options of every kind at once, row by row", "[attention]") {
  struct Models {
    FormatId q, k, v, p;
    const char* qk;
    const char* pv;
  };
  using enum FormatId;
  const std::array<Models, 4> models{
      {{e4m3fn, e4m3fn, e4m3fn, e4m3fn, "sm90.wgmma.e4m3", "sm90.wgmma.e4m3"},
       {e5m2, e4m3fn, e4m3fn, e5m2, "sm90.wgmma.e5m2.e4m3", "sm90.wgmma.e5m2.e4m3"},
       {e4m3fn, e4m3fn, e5m2, e4m3fn, "sm89.mma.e4m3", "sm89.mma.e4m3.e5m2"},
       {e4m3fn, e5m2, e4m3fn, e5m2, "fp32", "exact"}}};
  for (std::uint64_t seed = 0; seed < 36; ++seed) {
    const RandomStream draws(seed, "any attention");
    std::uint64_t next = 0;
    const auto pick = [&](std::uint64_t count) { return draws.below(next++, count); };
    const Models& m = models[pick(models.size())];
    const std::int64_t kv_heads = 1 + static_cast<std::int64_t>(pick(2));
    const std::int64_t heads = kv_heads * (1 + static_cast<std::int64_t>(pick(3)));
    const std::int64_t rows = 1 + static_cast<std::int64_t>(pick(7));
    const std::int64_t columns = 1 + static_cast<std::int64_t>(pick(120));
    const double size = std::array{0.3, 1.0, 3.0}[pick(3)];
    const AnyOperand q("q", seed, m.q, {heads, rows, 40}, pick(2) == 0, size);
    const AnyOperand k("k", seed, m.k, {kv_heads, columns, 40}, pick(2) == 0, 1.0);
    const AnyOperand v("v", seed, m.v, {kv_heads, columns, 9}, pick(2) == 0, 1.0);
    AttentionOptions o;
    o.qk_model = m.qk;
    o.pv_model = m.pv;
    o.p_format = m.p;
    o.q_tile = std::array<std::int64_t, 4>{1, 2, 5, 128}[pick(4)];
    o.kv_tile = std::array<std::int64_t, 3>{32, 64, 96}[pick(3)];
    o.softmax_scale = std::array{0.0F, 0.7F}[pick(2)];
    o.p_offset = std::array{8.0F, 0.0F, -4.0F, 15.5F}[pick(4)];
    o.rescale_threshold = std::array{0.0F, 1.0F, 8.0F}[pick(3)];
    o.two_level = pick(2) == 0;
    o.tile_order = pick(2) == 0 ? TileOrder::last_to_first : TileOrder::first_to_last;
    o.row_sum = pick(2) == 0 ? RowSum::columns : RowSum::quads;
    o.causal = pick(4) == 0;
    if (!o.causal && pick(2) == 0) o.window_right = static_cast<std::int64_t>(pick(50));
    if (pick(3) == 0) o.window_left = static_cast<std::int64_t>(pick(60));
    o.threads = 1 + static_cast<int>(pick(2));
    INFO("seed " << seed << ": " << heads << " heads of " << kv_heads << ", " << rows << " x "
                 << columns << ", " << o.pv_model << ", tiles " << o.q_tile << " x " << o.kv_tile
                 << ", windows " << o.window_left << " and " << o.window_right << ", causal "
                 << o.causal);
    const AttentionResult got = attention({q.view(), k.view(), v.view()}, o);
    Specified specified(q, k, v, o);
    std::string wrong;
    for (std::int64_t i = 0; i < heads * rows; ++i) {
      const std::vector<float> expected = specified.row(i / rows, i % rows);
      for (std::size_t c = 0; c < expected.size(); ++c) {
        const float one = got.o[static_cast<std::size_t>(i) * expected.size() + c];
        if (std::bit_cast<std::uint32_t>(one) != std::bit_cast<std::uint32_t>(expected[c]))
          wrong += fmt::format("head {} row {} column {}: expected {:a}, got {:a}\n", i / rows,
                               i % rows, c, expected[c], one);
      }
    }
    CHECK(wrong.substr(0, 500).empty());
    REQUIRE(got.tiles.size() == specified.tiles.size());
    for (std::size_t t = 0; t < got.tiles.size(); ++t)
      CHECK(text_of_tile(got.tiles[t]) == text_of_tile(specified.tiles[t]));
  }
}
