#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

/// What becomes of the scores of a head.
struct Scores {
  double scale = 1.0;
  double soft_cap = 0.0;                                   ///< 0: none
  double sink = -std::numeric_limits<double>::infinity();  ///< a score without a value
};

/// One row of attention over `seen` columns, the first of which k and v point to, in FP64.
void reference_row(const AttentionShape& shape, const float* q, const float* k, const float* v,
                   const Scores& scores, std::int64_t seen, double* o) {
  std::vector<double> s(static_cast<std::size_t>(seen));
  for (std::int64_t j = 0; j < seen; ++j) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < shape.d; ++i)
      sum += static_cast<double>(q[i]) * static_cast<double>(k[j * shape.d + i]);
    const double score = scores.scale * sum;
    s[static_cast<std::size_t>(j)] =
        scores.soft_cap > 0.0 ? scores.soft_cap * std::tanh(score / scores.soft_cap) : score;
  }
  if (s.empty()) return;
  const double maximum = *std::max_element(s.begin(), s.end());
  double total = std::exp(scores.sink - maximum);
  for (std::int64_t j = 0; j < seen; ++j) {
    const double p = std::exp(s[static_cast<std::size_t>(j)] - maximum);
    total += p;
    for (std::int64_t i = 0; i < shape.d_v; ++i)
      o[i] += p * static_cast<double>(v[j * shape.d_v + i]);
  }
  for (std::int64_t i = 0; i < shape.d_v; ++i) o[i] /= total;
}

}  // namespace

std::vector<double> attention_reference(const AttentionInputs& inputs, std::span<const float> q,
                                        std::span<const float> k, std::span<const float> v,
                                        const AttentionOptions& options) {
  validate(inputs, options);
  const auto check = [](std::string_view name, std::span<const float> values,
                        const AttentionOperand& operand) {
    require(values.size() == operand.codes.size(), name,
            fmt::format("{} values, as codes", operand.codes.size()),
            fmt::format("{}", values.size()));
  };
  check("q", q, inputs.q);
  check("k", k, inputs.k);
  check("v", v, inputs.v);
  const AttentionShape shape = attention_shape(inputs);
  const Scores usual{static_cast<double>(softmax_scale(inputs, options)),
                     static_cast<double>(options.soft_cap)};
  std::vector<double> o(static_cast<std::size_t>(shape.heads * shape.m * shape.d_v), 0.0);
  parallel_for(shape.heads * shape.m, threads_of(options), [&](std::int64_t i) {
    const std::int64_t kv_head = i / shape.m / shape.group;
    const std::int64_t row = i % shape.m;
    const SeenColumns seen = seen_columns(shape, options, row);
    const std::int64_t first = kv_head * shape.n + seen.begin;
    Scores scores = usual;
    if (!options.sinks.empty())
      scores.sink = static_cast<double>(options.sinks[static_cast<std::size_t>(i / shape.m)]);
    reference_row(shape, q.data() + i * shape.d, k.data() + first * shape.d,
                  v.data() + first * shape.d_v, scores, seen.end - seen.begin,
                  o.data() + i * shape.d_v);
  });
  return o;
}

std::vector<float> dequantize(const AttentionOperand& operand) {
  const FloatEnvironment environment;
  const std::span<const float> table = decode_table(operand.format);
  const auto size = static_cast<std::size_t>(operand.rows * operand.columns);
  std::vector<float> values(operand.codes.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = table[operand.codes[i]] * scale_of(operand, static_cast<std::int64_t>(i / size));
  return values;
}

}  // namespace fp8lab
