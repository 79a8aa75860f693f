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
        to.push_back(static_cast<float>(
            size * std::exp2(0.5 * static_cast<double>(i) +
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
  bool promotes = false;
  std::function<bool(Index h, Index t)> rescales_o = [](Index, Index) { return true; };
  std::function<bool(Index h, Index t)> rescales_sum = [](Index, Index) { return true; };
  std::function<float(float old, float found)> maximum = [](float old, float found) {
    return std::max(old, found);
  };
  std::function<float(float p, float cast)> summed = [](float own, float) { return own; };
  std::function<float(float o, float sum, float scale_v)> finish = [](float o, float sum,
                                                                      float scale) {
    return o * ((sum == 0.0F ? 0.0F : 1.0F / sum) * scale);
  };

  explicit AttentionLaunch(const AttentionProblem& problem)
      : p(problem),
        columns(problem.n),
        softmax(1.0 / std::sqrt(static_cast<double>(problem.d))),
        offset(problem.options.p_offset),
        threshold(problem.options.rescale_threshold),
        pv_model(problem.options.pv_model),
        p_format(problem.options.p_format) {
    q = [this](Index h, Index i, Index c) { return p.q[at(h * p.m + i, p.d, c)]; };
    k = [this](Index h, Index j, Index c) { return k_of(kv(h), j, c); };
    v = [this](Index h, Index j, Index c) { return v_of(kv(h), j, c); };
    scale_q = [this](Index h) { return p.scale_q[static_cast<std::size_t>(h)]; };
    scale_k = [this](Index h) { return p.scale_k[static_cast<std::size_t>(kv(h))]; };
    scale_v = [this](Index h) { return p.scale_v[static_cast<std::size_t>(kv(h))]; };
    sees = [this](Index, Index i, Index j) {
      const Index own = i + p.n - p.m;
      const bool left = p.options.window_left < 0 || j >= own - p.options.window_left;
      return left && (!p.options.causal || j <= own);
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

  /// From the last to the first, without tiles that the block's rows do not see.
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
    return order;
  }

  /// O [heads, m, d_v] in binary32.
  [[nodiscard]] std::vector<float> run() const {
    std::vector<float> o(static_cast<std::size_t>(p.heads * p.m * p.d_v));
    for (Index h = 0; h < p.heads; ++h)
      for (Index begin = 0; begin < p.m; begin += p.options.q_tile)
        run_block(h, begin, std::min(begin + p.options.q_tile, p.m), o);
    return o;
  }

 private:
  static float power(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

  void run_block(Index h, Index begin, Index end, std::vector<float>& out) const {
    const Index rows = end - begin;
    const float scale =
        static_cast<float>(static_cast<double>(static_cast<float>(softmax)) * log2e) *
        (scale_q(h) * scale_k(h));
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    std::vector<float> most(static_cast<std::size_t>(rows), kNone);
    std::vector<float> sum(most.size(), 0.0F);
    std::vector<float> o(static_cast<std::size_t>(rows * p.d_v), 0.0F);
    for (const Index t : tiles(h, begin / p.options.q_tile)) {
      const Index first = t * p.options.kv_tile;
      const Index width = std::min(first + p.options.kv_tile, columns) - first;
      std::vector<float> s = product_qk(h, begin, rows, first, width);
      std::vector<std::uint8_t> codes(s.size());
      for (Index r = 0; r < rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        float* of_row = s.data() + r * width;
        float found = kNone;
        for (Index j = 0; j < width; ++j) {
          if (!sees(h, begin + r, first + j)) of_row[j] = kNone;
          found = std::max(found, of_row[j]);
        }
        const float grown = maximum(most[row], found);
        const float step = (most[row] - grown) * scale;
        if (grown > most[row] && !(threshold > 0.0F && step >= -threshold)) {
          if (most[row] != kNone) {
            if (rescales_sum(h, t)) sum[row] *= power(step);
            for (Index c = 0; c < p.d_v && rescales_o(h, t); ++c) o[at(r, p.d_v, c)] *= power(step);
          }
          most[row] = grown;
        }
        const float shift = std::fma(most[row] == kNone ? -0.0F : -most[row], scale, offset);
        for (Index j = 0; j < width; ++j) {
          const float own = power(std::fma(of_row[j], scale, shift));
          const std::uint32_t code = encode(format(p_format), p_cast, own);
          codes[at(r, width, j)] = static_cast<std::uint8_t>(code);
          sum[row] += summed(own, static_cast<float>(decode(format(p_format), code)));
        }
      }
      add_pv(h, rows, first, width, codes, o);
    }
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < p.d_v; ++c)
        out[at(h * p.m + begin + r, p.d_v, c)] =
            finish(o[at(r, p.d_v, c)], sum[static_cast<std::size_t>(r)], scale_v(h));
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
    problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, width, p.d);
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
