#include "fp8lab/attention/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

/// What becomes of the scores of a head.
struct RowScores {
  double scale = 1.0;
  double soft_cap = 0.0;                                   ///< 0: none
  double sink = -std::numeric_limits<double>::infinity();  ///< a score without a value
};

/// What one row of Q reads, and where its gradients go: sums in FP64.
struct Row {
  const float* q;
  const float* o;
  const float* d_o;
  const float* k;  ///< [seen, d]
  const float* v;  ///< [seen, d_v]
  double* dq;
  double* dk;
  double* dv;
  double* d_sink;
};

double dot(const float* a, const float* b, std::int64_t size) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

void add_scaled(double factor, const float* x, std::int64_t size, double* to) {
  for (std::int64_t i = 0; i < size; ++i) to[i] += factor * static_cast<double>(x[i]);
}

void row_gradients(const AttentionShape& shape, const RowScores& scores, std::int64_t seen,
                   const Row& row) {
  std::vector<double> p(static_cast<std::size_t>(seen));
  std::vector<double> slope(p.size(), scores.scale);  // of a score over its product
  for (std::size_t j = 0; j < p.size(); ++j) {
    p[j] = scores.scale * dot(row.q, row.k + static_cast<std::int64_t>(j) * shape.d, shape.d);
    if (scores.soft_cap == 0.0) continue;
    const double bent = std::tanh(p[j] / scores.soft_cap);
    p[j] = scores.soft_cap * bent;
    slope[j] = scores.scale * (1.0 - bent * bent);
  }
  if (p.empty()) return;
  const double maximum = std::max(*std::max_element(p.begin(), p.end()), scores.sink);
  const double of_sink = std::exp(scores.sink - maximum);
  double total = of_sink;
  for (double& value : p) total += value = std::exp(value - maximum);
  const double delta = dot(row.d_o, row.o, shape.d_v);
  for (std::int64_t j = 0; j < seen; ++j) {
    const double weight = p[static_cast<std::size_t>(j)] / total;
    add_scaled(weight, row.d_o, shape.d_v, row.dv + j * shape.d_v);
    const double d_p = dot(row.d_o, row.v + j * shape.d_v, shape.d_v);
    const double d_s = slope[static_cast<std::size_t>(j)] * weight * (d_p - delta);
    add_scaled(d_s, row.k + j * shape.d, shape.d, row.dq);
    add_scaled(d_s, row.q, shape.d, row.dk + j * shape.d);
  }
  *row.d_sink -= of_sink / total * delta;
}

void require_size(std::string_view name, std::span<const float> x, std::int64_t size) {
  require(static_cast<std::int64_t>(x.size()) == size, name, counted(size, "value"),
          fmt::format("{}", x.size()));
}

std::vector<float> rounded(const std::vector<double>& x) { return {x.begin(), x.end()}; }

}  // namespace

AttentionGradients attention_backward(const AttentionInputs& shapes, std::span<const float> q,
                                      std::span<const float> k, std::span<const float> v,
                                      std::span<const float> o, std::span<const float> d_o,
                                      const AttentionOptions& options) {
  validate(shapes, options);
  const AttentionShape s = attention_shape(shapes);
  const std::int64_t kv_heads = s.heads / s.group;
  require_size("q", q, s.heads * s.m * s.d);
  require_size("k", k, kv_heads * s.n * s.d);
  require_size("v", v, kv_heads * s.n * s.d_v);
  require_size("o", o, s.heads * s.m * s.d_v);
  require_size("d_o", d_o, s.heads * s.m * s.d_v);
  const RowScores usual{static_cast<double>(softmax_scale(shapes, options)),
                        static_cast<double>(options.soft_cap)};
  std::vector<double> dq(q.size());
  std::vector<double> dk(k.size());
  std::vector<double> dv(v.size());
  std::vector<double> d_sinks(static_cast<std::size_t>(s.heads));
  // One head of K and V is one task, so that its sums have one order.
#pragma omp parallel for schedule(dynamic) num_threads(threads_of(options))
  for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
    const FloatEnvironment environment;
    for (std::int64_t i = kv * s.group * s.m; i < (kv + 1) * s.group * s.m; ++i) {
      const SeenColumns seen = seen_columns(s, options, i % s.m);
      const std::int64_t first = kv * s.n + seen.begin;
      RowScores scores = usual;
      if (!options.sinks.empty())
        scores.sink = static_cast<double>(options.sinks[static_cast<std::size_t>(i / s.m)]);
      row_gradients(s, scores, seen.end - seen.begin,
                    {q.data() + i * s.d, o.data() + i * s.d_v, d_o.data() + i * s.d_v,
                     k.data() + first * s.d, v.data() + first * s.d_v, dq.data() + i * s.d,
                     dk.data() + first * s.d, dv.data() + first * s.d_v, d_sinks.data() + i / s.m});
    }
  }
  const FloatEnvironment environment;
  if (options.sinks.empty()) d_sinks.clear();
  return {rounded(dq), rounded(dk), rounded(dv), rounded(d_sinks)};
}

}  // namespace fp8lab
