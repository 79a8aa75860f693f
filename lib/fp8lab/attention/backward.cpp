#include "fp8lab/attention/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

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

void row_gradients(const AttentionShape& shape, double scale, std::int64_t seen, const Row& row) {
  std::vector<double> p(static_cast<std::size_t>(seen));
  for (std::int64_t j = 0; j < seen; ++j)
    p[static_cast<std::size_t>(j)] = scale * dot(row.q, row.k + j * shape.d, shape.d);
  if (p.empty()) return;
  const double maximum = *std::max_element(p.begin(), p.end());
  double total = 0.0;
  for (double& value : p) total += value = std::exp(value - maximum);
  const double delta = dot(row.d_o, row.o, shape.d_v);
  for (std::int64_t j = 0; j < seen; ++j) {
    const double weight = p[static_cast<std::size_t>(j)] / total;
    add_scaled(weight, row.d_o, shape.d_v, row.dv + j * shape.d_v);
    const double d_p = dot(row.d_o, row.v + j * shape.d_v, shape.d_v);
    const double d_s = scale * weight * (d_p - delta);
    add_scaled(d_s, row.k + j * shape.d, shape.d, row.dq);
    add_scaled(d_s, row.q, shape.d, row.dk + j * shape.d);
  }
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
  require(options.soft_cap == 0.0F, "soft_cap", "0: gradients of soft caps are not computed",
          fmt::format("{}", options.soft_cap));
  require(options.sinks.empty(), "sinks", "none: gradients of sinks are not computed",
          fmt::format("{}", options.sinks.size()));
  const AttentionShape s = attention_shape(shapes);
  const std::int64_t kv_heads = s.heads / s.group;
  require_size("q", q, s.heads * s.m * s.d);
  require_size("k", k, kv_heads * s.n * s.d);
  require_size("v", v, kv_heads * s.n * s.d_v);
  require_size("o", o, s.heads * s.m * s.d_v);
  require_size("d_o", d_o, s.heads * s.m * s.d_v);
  const double scale = static_cast<double>(softmax_scale(shapes, options));
  std::vector<double> dq(q.size());
  std::vector<double> dk(k.size());
  std::vector<double> dv(v.size());
  // One head of K and V is one task, so that its sums have one order.
#pragma omp parallel for schedule(dynamic) num_threads(threads_of(options))
  for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
    const FloatEnvironment environment;
    for (std::int64_t i = kv * s.group * s.m; i < (kv + 1) * s.group * s.m; ++i) {
      const SeenColumns seen = seen_columns(s, options, i % s.m);
      const std::int64_t first = kv * s.n + seen.begin;
      row_gradients(s, scale, seen.end - seen.begin,
                    {q.data() + i * s.d, o.data() + i * s.d_v, d_o.data() + i * s.d_v,
                     k.data() + first * s.d, v.data() + first * s.d_v, dq.data() + i * s.d,
                     dk.data() + first * s.d, dv.data() + first * s.d_v});
    }
  }
  const FloatEnvironment environment;
  return {rounded(dq), rounded(dk), rounded(dv)};
}

}  // namespace fp8lab
