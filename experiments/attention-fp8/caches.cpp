#include "attention-fp8/caches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <span>
#include <utility>

#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

std::vector<float> normal_values(const RunContext& context, std::string_view stream,
                                 std::int64_t count, double size) {
  const RandomStream random = context.random(stream);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(size * random.normal(static_cast<std::uint64_t>(i))));
  return values;
}

float scale_for(const CacheSettings& s, std::int64_t d, double size = 1.0) {
  return static_cast<float>(s.deviation / (size * std::sqrt(static_cast<double>(d))));
}

/// FlashAttention-4's settings on `sm100.tcgen05`, for codes of a format.
AttentionOptions options_of(const RunContext& context, const CacheSettings& s, FormatId held) {
  AttentionOptions options;
  options.qk_model = *instruction_for("sm100.tcgen05.e4m3", FormatId::e4m3fn, held);
  options.pv_model = options.qk_model;
  options.softmax_scale = scale_for(s, s.head_size);
  options.threads = 1;
  options.backend = context.backend;
  return options;
}

/// The relative L2 error of one head of O.
template <typename T>
double error_of_head(const std::vector<double>& exact, const std::vector<T>& o, std::int64_t heads,
                     std::size_t head) {
  const std::size_t size = exact.size() / static_cast<std::size_t>(heads);
  return compare(std::span(exact).subspan(head * size, size),
                 std::span<const T>(o).subspan(head * size, size))
      .relative_l2;
}

/// Q in E4M3, floats of K and V, and their exact attention. K and V have a head for each size of V,
/// and Q the same heads.
struct Drawn {
  AttentionTensor q;
  std::vector<float> k, v;
  std::vector<double> exact;
  std::int64_t heads = 0;
  std::int64_t length = 0;
};

/// Operands of which only the shapes matter.
class Shapes {
 public:
  AttentionOperand operator()(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
    std::vector<std::uint8_t>& codes =
        codes_.emplace_back(static_cast<std::size_t>(heads * rows * columns));
    return {FormatId::e4m3fn, codes, heads, rows, columns};
  }

 private:
  std::deque<std::vector<std::uint8_t>> codes_;
};

Drawn draw(const RunContext& context, const CacheSettings& s, std::int64_t length) {
  const auto heads = std::ssize(s.value_sizes);
  const auto values = [&](std::string_view name, std::int64_t rows) {
    return normal_values(context, name, heads * rows * s.head_size, 1.0);
  };
  Drawn x{
      attention_tensor(values("attention-fp8/cache/q", s.queries), heads, s.queries, s.head_size),
      values("attention-fp8/cache/k", length),
      values("attention-fp8/cache/v", length),
      {},
      heads,
      length};
  const auto of_head = static_cast<std::size_t>(length * s.head_size);
  for (std::size_t i = 0; i < x.v.size(); ++i)
    x.v[i] *= static_cast<float>(s.value_sizes[i / of_head]);
  Shapes shape;
  const AttentionOperand keys = shape(heads, length, s.head_size);
  // The error of Q's cast is not that of the cache.
  x.exact = attention_reference({x.q.operand, keys, keys}, dequantize(x.q.operand), x.k, x.v,
                                options_of(context, s, FormatId::e4m3fn));
  return x;
}

std::vector<CachePoint> measure_rule(const RunContext& context, const CacheSettings& s,
                                     const Drawn& x, const std::string& rule_name) {
  const CacheRule& rule = find_cache_rule(rule_name);
  const AttentionTensor k = cached_tensor(x.k, x.heads, x.length, s.head_size, rule);
  const AttentionTensor v = cached_tensor(x.v, x.heads, x.length, s.head_size, rule);
  const AttentionInputs in{x.q.operand, k.operand, v.operand};
  const AttentionOptions options = options_of(context, s, rule.format);
  const std::vector<double> stored =
      attention_reference(in, dequantize(in.q), dequantize(in.k), dequantize(in.v), options);
  const std::vector<float> kernel = attention(in, options).o;
  std::vector<CachePoint> points;
  for (std::size_t head = 0; head < s.value_sizes.size(); ++head)
    points.push_back({rule_name, x.length, s.value_sizes[head],
                      error_of_head(x.exact, stored, x.heads, head),
                      error_of_head(x.exact, kernel, x.heads, head)});
  return points;
}

/// The first columns of each row of DeepSeek's cache, which are V.
std::vector<float> values_of_rows(std::span<const float> rows) {
  std::vector<float> v;
  for (std::size_t at = 0; at < rows.size(); at += kDeepSeekRowElements) {
    const auto row = rows.subspan(at, kDeepSeekRowValues);
    v.insert(v.end(), row.begin(), row.end());
  }
  return v;
}

/// DeepSeek-V3.2's rows of 576 elements, of which V is a part, in exact attention: its kernel reads
/// them as BF16.
CachePoint measure_rows(const RunContext& context, const CacheSettings& s, std::int64_t length,
                        double size) {
  const std::int64_t d = kDeepSeekRowElements;
  const std::vector<float> q = normal_values(context, "attention-fp8/rows/q", s.queries * d, 1.0);
  const std::vector<float> rows = normal_values(context, "attention-fp8/rows/k", length * d, size);
  const std::vector<float> held = read_deepseek_rows(pack_deepseek_rows(rows));
  const std::vector<float> v = values_of_rows(rows);
  Shapes shape;
  const AttentionInputs in{shape(1, s.queries, d), shape(1, length, d),
                           shape(1, length, kDeepSeekRowValues)};
  AttentionOptions options = options_of(context, s, FormatId::e4m3fn);
  options.softmax_scale = scale_for(s, d, size);
  const std::vector<double> exact = attention_reference(in, q, rows, v, options);
  const std::vector<double> stored =
      attention_reference(in, q, held, values_of_rows(held), options);
  const double error = error_of_head(exact, stored, 1, 0);
  return {std::string(kDeepSeekCache), length, size, error, error};
}

std::size_t place_of_smallest(const std::vector<double>& sizes) {
  return static_cast<std::size_t>(std::ranges::min_element(sizes) - sizes.begin());
}

}  // namespace

std::string cache_called(std::string_view name) {
  const bool known =
      name == kDeepSeekCache ||
      std::ranges::find(cache_rules(), name, &CacheRule::name) != cache_rules().end();
  require(known, "caches", fmt::format("one of {}, {}", names_of(cache_rules()), kDeepSeekCache),
          name);
  return std::string(name);
}

std::vector<CachePoint> measure_caches(const RunContext& context, const CacheSettings& s) {
  const std::size_t rules = s.rules.size();
  std::vector<Drawn> drawn(s.lengths.size());
  parallel_points(
      context, drawn.size(), [&](std::size_t i) { drawn[i] = draw(context, s, s.lengths[i]); }, 0.0,
      0.3);
  std::vector<std::vector<CachePoint>> parts(s.lengths.size() * rules);
  parallel_points(
      context, parts.size(),
      [&](std::size_t i) {
        const Drawn& x = drawn[i / rules];
        const std::string& rule = s.rules[i % rules];
        if (rule != kDeepSeekCache) {
          parts[i] = measure_rule(context, s, x, rule);
          return;
        }
        for (const double size : s.value_sizes)
          parts[i].push_back(measure_rows(context, s, x.length, size));
      },
      0.3);
  std::vector<CachePoint> points;
  for (const std::vector<CachePoint>& part : parts)
    points.insert(points.end(), part.begin(), part.end());
  return points;
}

Table cache_table(const std::vector<CachePoint>& points) {
  using P = CachePoint;
  return row_table<P>(
      "caches", "Relative L2 error of O against FP64 on K and V before they were cached",
      {{"cache", "", "of K and V", &P::rule},
       {"length", "rows", "of K and V", &P::length},
       {"value_size", "1", "standard deviation of the head's V", &P::value_size},
       {"stored_error", "1", "of exact attention on what the cache holds", &P::stored},
       {"error", "1", "of a kernel on its codes; deepseek-v3.2: of exact attention", &P::kernel}},
      points);
}

Plot cache_plot(const std::vector<std::vector<CachePoint>>& draws, const CacheSettings& s) {
  const double smallest = s.value_sizes[place_of_smallest(s.value_sizes)];
  Plot plot{"caches",
            fmt::format("Error of attention over the length of its cache, in a head whose V has a "
                        "standard deviation of {:g}",
                        smallest),
            {"rows of K and V", true},
            {"relative L2 error of O", true},
            {}};
  const std::vector<CachePoint>& first = draws.front();
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < first.size(); ++i)
    if (first[i].value_size == smallest) places.push_back(i);
  plot.series = series_by(
      places, [&](std::size_t i) { return first[i].rule; },
      [&](std::size_t i) {
        const Spread spread =
            spread_of(each_repeat(draws, [&](const auto& one) { return one[i].kernel; }));
        return std::tuple{static_cast<double>(first[i].length), spread.mean, spread.min,
                          spread.max};
      });
  return plot;
}

std::vector<std::string> cache_findings(const std::vector<std::vector<CachePoint>>& draws,
                                        const CacheSettings& s) {
  std::vector<std::string> findings;
  const std::int64_t longest = *std::ranges::max_element(s.lengths);
  const std::size_t smallest = place_of_smallest(s.value_sizes);
  const std::vector<CachePoint>& first = draws.front();
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].length != longest || first[i].value_size != s.value_sizes[smallest]) continue;
    const auto error = [&](std::size_t at) {
      return log_interval_text(each_repeat(draws, [&](const auto& one) { return one[at].kernel; }));
    };
    findings.push_back(fmt::format(
        "K and V cached as {}: relative L2 error {} in a head whose V has a standard deviation of "
        "{:g}, {} keys ({} queries, logits with {:g}; {}; draws: {}).",
        first[i].rule, error(i), first[i].value_size, longest, s.queries, s.deviation,
        kLogIntervalMeaning, draws.size()));
  }
  return findings;
}

}  // namespace fp8lab::experiments
