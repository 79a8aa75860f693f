#pragma once
// An attention kernel in slow motion: every read of memory, every scale, the mask, the order of
// tiles, every rescaling and every store is a function that a fault may replace. It shares the
// instruction and the casts with the library, and nothing else.

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::test {

/// Codes and scales, as the kernel finds them in memory. Heads have unlike scales.
struct AttentionProblem {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t m = 96;
  std::int64_t n = 160;
  std::int64_t d = 64;
  std::int64_t d_v = 64;
  AttentionOptions options{.q_tile = 32, .kv_tile = 64};
  double scale_step = 0.5;  ///< log2 of the usual factor between the scales of heads; 0: all are 1
  std::vector<std::uint8_t> q{}, k{}, v{};
  std::vector<float> scale_q{}, scale_k{}, scale_v{};

  /// Logits with a standard deviation of about `spread`.
  void fill(std::uint64_t seed, double spread) {
    const auto codes = [&](std::vector<std::uint8_t>& to, std::int64_t count, const char* name) {
      const RandomStream stream(seed, name);
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<std::uint8_t>(
            encode(format(FormatId::e4m3fn), kNvidiaSatfinite,
                   static_cast<float>(16.0 * stream.normal(static_cast<std::uint64_t>(i))))));
    };
    const auto scales = [&](std::vector<float>& to, std::int64_t count, double size,
                            const char* name) {
      const RandomStream stream(seed, name);
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(
            scale_step == 0.0
                ? 1.0F
                : static_cast<float>(
                      size * std::exp2(scale_step * static_cast<double>(i) +
                                       0.2 * stream.normal(static_cast<std::uint64_t>(i)))));
    };
    codes(q, heads * m * d, "q");
    codes(k, kv_heads * n * d, "k");
    codes(v, kv_heads * n * d_v, "v");
    scales(scale_q, heads, spread / 32.0, "scale_q");
    scales(scale_k, kv_heads, 1.0 / 16.0, "scale_k");
    scales(scale_v, kv_heads, 1.0 / 19.0, "scale_v");
  }

  [[nodiscard]] AttentionInputs inputs() const {
    return {{FormatId::e4m3fn, q, heads, m, d, scale_q},
            {FormatId::e4m3fn, k, kv_heads, n, d, scale_k},
            {FormatId::e4m3fn, v, kv_heads, n, d_v, scale_v}};
  }
};

/// One launch. `h` is a head of Q, `i` a row of Q, `j` a row of K and V, `t` a tile.
struct AttentionLaunch {
  using Index = std::int64_t;
  const AttentionProblem& p;
  std::function<std::uint8_t(Index h, Index i, Index c)> q, k, v;
  std::function<float(Index h)> scale_q, scale_k, scale_v;
  std::function<bool(Index h, Index i, Index j)> sees;
  std::function<std::vector<Index>(Index h, Index block)> tiles;
  Index columns;  ///< of K and V that the kernel believes in
  double softmax;
  double log2e = 1.4426950408889634;
  float offset;
  float threshold;
  std::string pv_model;
  FormatId p_format;
  CastPolicy p_cast = kNvidiaSatfinite;
  bool promotes;
  std::function<bool(Index h, Index t)> rescales_o = [](Index, Index) { return true; };
  std::function<bool(Index h, Index t)> rescales_sum = [](Index, Index) { return true; };
  std::function<float(float old, float found)> maximum = [](float old, float found) {
    return std::max(old, found);
  };
  std::function<float(float p, float cast)> summed = [](float own, float) { return own; };
  /// What the four threads of a row have summed; with `RowSum::columns` the first has all.
  using Partial = std::array<float, 4>;
  std::function<float(const Partial& sum, Index c)> total = [](const Partial& sum, Index) {
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
  };
  std::function<float(float o, float sum, float scale_v)> finish = [](float o, float sum,
                                                                      float scale) {
    return o * ((sum == 0.0F ? 0.0F : 1.0F / sum) * scale);
  };
  std::function<float(float x)> exp2 = [](float x) {
    return static_cast<float>(std::exp2(static_cast<double>(x)));
  };
  /// What stands for an element of S, before the mask.
  std::function<float(Index h, Index i, Index j, float s)> score = [](Index, Index, Index,
                                                                      float s) { return s; };
  float hidden = -std::numeric_limits<float>::infinity();  ///< what the mask writes
  bool hides_first = true;                                 ///< the mask comes before the maximum
  /// The row of a block whose alpha, row sum scale a row.
  std::function<Index(Index row)> alpha_of = [](Index row) { return row; };
  std::function<Index(Index row)> sum_of = [](Index row) { return row; };
  float sink = -std::numeric_limits<float>::infinity();  ///< a score without a value
  bool follows_tile = false;  ///< the maximum is that of the tile, smaller or larger
  FormatId k_format = FormatId::e4m3fn;
  std::vector<double>* lse = nullptr;  ///< the natural logarithm of each row's sum is added
  bool clears_o = true;                ///< at the start of a block
  bool clears_sum = true;              ///< likewise

  explicit AttentionLaunch(const AttentionProblem& problem)
      : p(problem),
        columns(problem.n),
        softmax(problem.options.softmax_scale > 0.0F
                    ? static_cast<double>(problem.options.softmax_scale)
                    : 1.0 / std::sqrt(static_cast<double>(problem.d))),
        offset(problem.options.p_offset),
        threshold(problem.options.rescale_threshold),
        pv_model(problem.options.pv_model),
        p_format(problem.options.p_format),
        promotes(problem.options.two_level) {
    q = [this](Index h, Index i, Index c) { return p.q[at(h * p.m + i, p.d, c)]; };
    k = [this](Index h, Index j, Index c) { return k_of(kv(h), j, c); };
    v = [this](Index h, Index j, Index c) { return v_of(kv(h), j, c); };
    scale_q = [this](Index h) { return p.scale_q[static_cast<std::size_t>(h)]; };
    scale_k = [this](Index h) { return p.scale_k[static_cast<std::size_t>(kv(h))]; };
    scale_v = [this](Index h) { return p.scale_v[static_cast<std::size_t>(kv(h))]; };
    sees = [this](Index, Index i, Index j) {
      const Index own = i + p.n - p.m;
      const Index right = p.options.causal ? 0 : p.options.window_right;
      const bool left = p.options.window_left < 0 || j >= own - p.options.window_left;
      return left && (right < 0 || j <= own + right);
    };
    tiles = [this](Index h, Index block) { return usual_tiles(h, block); };
  }
  AttentionLaunch(const AttentionLaunch&) = delete;
  AttentionLaunch& operator=(const AttentionLaunch&) = delete;

  static std::size_t at(Index row, Index width, Index c) {
    return static_cast<std::size_t>(row * width + c);
  }
  [[nodiscard]] Index kv(Index h) const { return h / (p.heads / p.kv_heads); }
  [[nodiscard]] std::uint8_t k_of(Index head, Index j, Index c) const {
    return j < p.n ? p.k[at(head * p.n + j, p.d, c)] : std::uint8_t{0};
  }
  [[nodiscard]] std::uint8_t v_of(Index head, Index j, Index c) const {
    return j < p.n ? p.v[at(head * p.n + j, p.d_v, c)] : std::uint8_t{0};
  }
  [[nodiscard]] Index tile_count() const {
    return (columns + p.options.kv_tile - 1) / p.options.kv_tile;
  }

  /// In the order of the options, without tiles that the block's rows do not see.
  [[nodiscard]] std::vector<Index> usual_tiles(Index h, Index block) const {
    std::vector<Index> order;
    for (Index t = tile_count() - 1; t >= 0; --t) {
      bool any = false;
      const Index end = std::min((block + 1) * p.options.q_tile, p.m);
      for (Index i = block * p.options.q_tile; i < end; ++i)
        for (Index j = t * p.options.kv_tile; j < std::min((t + 1) * p.options.kv_tile, columns);
             ++j)
          any |= sees(h, i, j);
      if (any) order.push_back(t);
    }
    if (p.options.tile_order == TileOrder::first_to_last) std::ranges::reverse(order);
    return order;
  }

  /// O [heads, m, d_v] in binary32.
  [[nodiscard]] std::vector<float> run() const {
    std::vector<float> o(static_cast<std::size_t>(p.heads * p.m * p.d_v));
    State state;
    for (Index h = 0; h < p.heads; ++h)
      for (Index begin = 0; begin < p.m; begin += p.options.q_tile)
        run_block(h, begin, std::min(begin + p.options.q_tile, p.m), state, o);
    return o;
  }

 private:
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  /// What a block of rows keeps between tiles.
  struct State {
    std::vector<float> most{};
    std::vector<Partial> sum{};
    std::vector<float> o{};
  };

  [[nodiscard]] float scale_of(Index h) const {
    return static_cast<float>(static_cast<double>(static_cast<float>(softmax)) * log2e) *
           (scale_q(h) * scale_k(h));
  }

  void run_block(Index h, Index begin, Index end, State& state, std::vector<float>& out) const {
    const Index rows = end - begin;
    const auto count = static_cast<std::size_t>(rows);
    state.most.assign(count, kNone);
    if (clears_sum) state.sum.clear();
    state.sum.resize(count, Partial{});
    if (clears_o) state.o.clear();
    state.o.resize(static_cast<std::size_t>(rows * p.d_v), 0.0F);
    for (const Index t : tiles(h, begin / p.options.q_tile)) add_tile(h, t, begin, rows, state);
    for (Index r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      if (lse != nullptr)
        lse->push_back(
            std::log(static_cast<double>(total(state.sum[row], 0))) +
            (static_cast<double>(state.most[row] * scale_of(h)) - static_cast<double>(offset)) /
                log2e);
      if (std::isfinite(sink))
        state.sum[row][0] += exp2(std::fma(-state.most[row], scale_of(h), offset) +
                                  sink * static_cast<float>(log2e));
    }
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < p.d_v; ++c)
        out[at(h * p.m + begin + r, p.d_v, c)] =
            finish(state.o[at(r, p.d_v, c)],
                   total(state.sum[static_cast<std::size_t>(sum_of(r) % rows)], c), scale_v(h));
  }

  void add_tile(Index h, Index t, Index begin, Index rows, State& state) const {
    const Index first = t * p.options.kv_tile;
    const Index width = std::min(first + p.options.kv_tile, columns) - first;
    std::vector<float> s = product_qk(h, begin, rows, first, width);
    const std::vector<float> steps = follow_maxima(h, first, width, begin, s, state);
    for (Index r = 0; r < rows; ++r) {
      const float step = steps[static_cast<std::size_t>(alpha_of(r) % rows)];
      if (step == 0.0F) continue;
      if (rescales_sum(h, t))
        for (float& sum : state.sum[static_cast<std::size_t>(r)]) sum *= exp2(step);
      for (Index c = 0; c < p.d_v && rescales_o(h, t); ++c) state.o[at(r, p.d_v, c)] *= exp2(step);
    }
    std::vector<std::uint8_t> codes(s.size());
    for (Index r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      Partial of_tile{};
      Partial& sum = p.options.row_sum == RowSum::quads ? of_tile : state.sum[row];
      const float most = state.most[row];
      const float shift = std::fma(most == kNone ? -0.0F : -most, scale_of(h), offset);
      for (Index j = 0; j < width; ++j) {
        const float own = exp2(std::fma(s[at(r, width, j)], scale_of(h), shift));
        const std::uint32_t code = encode(format(p_format), p_cast, own);
        codes[at(r, width, j)] = static_cast<std::uint8_t>(code);
        const auto thread =
            static_cast<std::size_t>(p.options.row_sum == RowSum::quads ? j / 2 % 4 : 0);
        sum[thread] += summed(own, static_cast<float>(decode(format(p_format), code)));
      }
      for (std::size_t i = 0; i < of_tile.size(); ++i) state.sum[row][i] += of_tile[i];
    }
    add_pv(h, rows, first, width, codes, state.o);
  }

  /// Masks S, and returns the log2 of each row's alpha; 0 where nothing is rescaled.
  [[nodiscard]] std::vector<float> follow_maxima(Index h, Index first, Index width, Index begin,
                                                 std::vector<float>& s, State& state) const {
    std::vector<float> steps(state.most.size(), 0.0F);
    for (std::size_t row = 0; row < steps.size(); ++row) {
      const Index i = begin + static_cast<Index>(row);
      float* of_row = s.data() + static_cast<Index>(row) * width;
      float found = kNone;
      for (Index j = 0; j < width; ++j) {
        of_row[j] = score(h, i, first + j, of_row[j]);
        if (!hides_first) found = std::max(found, of_row[j]);
        if (!sees(h, i, first + j)) of_row[j] = hidden;
        found = std::max(found, of_row[j]);
      }
      float& most = state.most[row];
      const float grown = maximum(most, found);
      const float step = (most - grown) * scale_of(h);
      if (follows_tile && most != kNone && found != kNone) {
        steps[row] = (most - found) * scale_of(h);
        most = found;
        continue;
      }
      if (!(grown > most) || (threshold > 0.0F && step >= -threshold)) continue;
      if (most != kNone) steps[row] = step;
      most = grown;
    }
    return steps;
  }

  [[nodiscard]] std::vector<float> product_qk(Index h, Index begin, Index rows, Index first,
                                              Index width) const {
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    for (Index i = begin; i < begin + rows; ++i)
      for (Index c = 0; c < p.d; ++c) a.push_back(q(h, i, c));
    for (Index j = first; j < first + width; ++j)
      for (Index c = 0; c < p.d; ++c) b.push_back(k(h, j, c));
    GemmProblem problem;
    problem.model = find_instruction_model(p.options.qk_model).accumulator;
    problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a, rows, p.d);
    problem.b = CodeMatrix::row_major(k_format, b, width, p.d);
    std::vector<float> s(static_cast<std::size_t>(rows * width));
    gemm(problem, s, 1);
    return s;
  }

  void add_pv(Index h, Index rows, Index first, Index width, const std::vector<std::uint8_t>& codes,
              std::vector<float>& o) const {
    std::vector<std::uint8_t> b;
    for (Index c = 0; c < p.d_v; ++c)
      for (Index j = first; j < first + width; ++j) b.push_back(v(h, j, c));
    GemmProblem problem;
    problem.model = find_instruction_model(pv_model).accumulator;
    problem.a = CodeMatrix::row_major(p_format, codes, rows, width);
    problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, p.d_v, width);
    std::vector<float> zero(o.size(), 0.0F);
    problem.c = promotes ? zero.data() : o.data();
    problem.c_enters = CPlacement::accumulator;
    std::vector<float> next(o.size());
    gemm(problem, next, 1);
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = promotes ? o[i] + next[i] : next[i];
  }
};

}  // namespace fp8lab::test
