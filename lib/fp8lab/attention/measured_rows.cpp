#include "fp8lab/attention/measured_rows.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/core/parallel.hpp"

namespace fp8lab {

MeasuredRows::MeasuredRows(const AttentionInputs& inputs, const AttentionOptions& options,
                           std::span<const float> got, std::span<const AttentionRows> rows)
    : inputs_(inputs),
      options_(options),
      got_(got),
      shape_(attention_shape(inputs)),
      q_(dequantize(inputs.q)),
      k_(dequantize(inputs.k)),
      v_(dequantize(inputs.v)) {
  for (const AttentionRows& part : rows)
    for (std::int64_t row = part.begin; row < part.end; ++row)
      rows_.push_back({part.head, row, seen_columns(shape_, options_, row), {}});
  parallel_for(std::ssize(rows_), threads_of(options_), [&](std::int64_t i) {
    MeasuredRow& row = rows_[static_cast<std::size_t>(i)];
    row.scores = scores(row, row.head, row.head / shape_.group);
  });
}

std::vector<const MeasuredRow*> MeasuredRows::some(std::size_t most) const {
  std::vector<const MeasuredRow*> seeing;
  for (const MeasuredRow& row : rows_)
    if (row.seen.end > row.seen.begin) seeing.push_back(&row);
  if (seeing.size() <= most) return seeing;
  std::vector<const MeasuredRow*> found;
  for (std::size_t i = 0; i < most; ++i) found.push_back(seeing[i * seeing.size() / most]);
  return found;
}

std::int64_t MeasuredRows::few_columns() const { return std::min<std::int64_t>(16, shape_.d_v); }

double MeasuredRows::score_of(double sum) const {
  const double score = static_cast<double>(softmax_scale(inputs_, options_)) * sum;
  const auto cap = static_cast<double>(options_.soft_cap);
  return cap > 0.0 ? cap * std::tanh(score / cap) : score;
}

std::vector<double> MeasuredRows::scores(const MeasuredRow& row, std::int64_t q_head,
                                         std::int64_t k_head) const {
  const float* q = q_.data() + (q_head * shape_.m + row.row) * shape_.d;
  const float* k = k_.data() + k_head * shape_.n * shape_.d;
  std::vector<double> s(static_cast<std::size_t>(shape_.n));
  for (double& one : s) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < shape_.d; ++i)
      sum += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    one = score_of(sum);
    k += shape_.d;
  }
  return s;
}

std::vector<double> MeasuredRows::scores_from(
    const MeasuredRow& row,
    const std::function<std::int64_t(std::int64_t, std::int64_t)>& from) const {
  const float* q = q_.data() + (row.head * shape_.m + row.row) * shape_.d;
  const float* k = k_.data() + row.head / shape_.group * shape_.n * shape_.d;
  std::vector<double> s;
  for (std::int64_t j = 0; j < shape_.n; ++j) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < shape_.d; ++i)
      sum += static_cast<double>(q[i]) * static_cast<double>(k[j * shape_.d + from(j, i)]);
    s.push_back(score_of(sum));
  }
  return s;
}

RowWeights MeasuredRows::weights(const MeasuredRow& row, const std::vector<double>& s,
                                 SeenColumns seen, double factor) const {
  RowWeights w{std::vector<double>(s.size(), 0.0), 0.0, -std::numeric_limits<double>::infinity()};
  const auto begin = static_cast<std::size_t>(seen.begin);
  const auto end = static_cast<std::size_t>(seen.end);
  for (std::size_t j = begin; j < end; ++j) w.largest = std::max(w.largest, factor * s[j]);
  for (std::size_t j = begin; j < end; ++j) w.p[j] = std::exp(factor * s[j] - w.largest);
  if (!options_.sinks.empty())
    w.sink = std::exp(static_cast<double>(options_.sinks[static_cast<std::size_t>(row.head)]) -
                      w.largest);
  return w;
}

const float* MeasuredRows::v_row(std::int64_t kv_head, std::int64_t column) const {
  return v_.data() + (kv_head * shape_.n + column) * shape_.d_v;
}

std::vector<double> MeasuredRows::output(const RowWeights& w, std::int64_t kv_head,
                                         std::int64_t columns) const {
  std::vector<double> o(static_cast<std::size_t>(columns), 0.0);
  double sum = w.sink;
  for (std::int64_t j = 0; j < shape_.n; ++j) {
    const double one = w.p[static_cast<std::size_t>(j)];
    if (one == 0.0) continue;
    sum += one;
    for (std::int64_t c = 0; c < columns; ++c)
      o[static_cast<std::size_t>(c)] += one * static_cast<double>(v_row(kv_head, j)[c]);
  }
  for (double& one : o) one = sum > 0.0 ? one / sum : 0.0;
  return o;
}

double MeasuredRows::got_at(const MeasuredRow& row, std::int64_t column) const {
  return static_cast<double>(
      got_[static_cast<std::size_t>((row.head * shape_.m + row.row) * shape_.d_v + column)]);
}

void MeasuredRows::add_products(const MeasuredRow& row, const std::vector<double>& o,
                                OutputProducts& sums) const {
  for (std::size_t c = 0; c < o.size(); ++c) {
    const double g = got_at(row, static_cast<std::int64_t>(c));
    if (!std::isfinite(g)) continue;
    sums.oo += o[c] * o[c];
    sums.og += o[c] * g;
    sums.gg += g * g;
  }
}

double MeasuredRows::apart(
    const std::vector<const MeasuredRow*>& rows,
    const std::function<std::vector<double>(const MeasuredRow&)>& output_of) const {
  OutputProducts sums;
  for (const MeasuredRow* row : rows) add_products(*row, output_of(*row), sums);
  return sums.apart();
}

}  // namespace fp8lab
