#include "fp8lab/verify/expect_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/attention/mistakes.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/verify/attention_gates.hpp"
#include "fp8lab/verify/tails.hpp"

namespace fp8lab {
namespace {

/// Multiply-adds of a trial, and trials with faults.
constexpr std::int64_t kTrialProducts = std::int64_t{1} << 25;
constexpr int kFaultTrials = 2;
constexpr int kErrorTrials = 8;
constexpr std::array<double, 5> kSpreads{0.25, 0.5, 1.0, 2.0, 4.0};

/// The share `q` of the values is below this, interpolated between neighbours.
double share_below(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

double median(const std::vector<double>& values) { return share_below(values, 0.5); }

ErrorQuantiles quantiles(const std::vector<double>& values) {
  return {share_below(values, 0.05), median(values), share_below(values, 0.95)};
}

void check(const AttentionExpectOptions& o) {
  const auto positive = [](std::string_view name, std::int64_t value) {
    require(value > 0, name, "a number above 0", fmt::format("{}", value));
  };
  positive("heads", o.heads);
  positive("kv_heads", o.kv_heads);
  positive("m", o.m);
  positive("n", o.n);
  positive("d", o.d);
  positive("d_v", o.d_v);
  require(o.heads % o.kv_heads == 0, "kv_heads", fmt::format("a divisor of {} heads", o.heads),
          fmt::format("{}", o.kv_heads));
  require(o.trials >= 2 && o.trials <= 1000, "trials", "2 to 1000", fmt::format("{}", o.trials));
  require(o.spread > 0.0 && std::isfinite(o.spread), "spread", "a number above 0",
          fmt::format("{}", o.spread));
  require(o.risk > 0.0 && o.risk < 0.5, "risk", "above 0 and below 0.5", fmt::format("{}", o.risk));
  require(o.attention.sinks.empty(), "sinks", "none", fmt::format("{}", o.attention.sinks.size()));
}

/// Q, K and V of one draw, as the cache holds them.
struct Draw {
  AttentionTensor q;
  AttentionTensor k;
  AttentionTensor v;
  [[nodiscard]] AttentionInputs inputs() const { return {q.operand, k.operand, v.operand}; }
};

/// What the errors depend on.
struct Setting {
  double spread = 1.0;
  std::string_view cache;
  std::int64_t n = 0;
};

/// The options with instructions that read the cache's codes; none where the units have none.
std::optional<AttentionOptions> options_for(const AttentionOptions& options,
                                            std::string_view cache) {
  const FormatId held = find_cache_rule(cache).format;
  AttentionOptions found = options;
  const auto qk = instruction_for(options.qk_model, FormatId::e4m3fn, held);
  const auto pv = instruction_for(options.pv_model, options.p_format, held);
  if (!qk || !pv) return std::nullopt;
  found.qk_model = *qk;
  found.pv_model = *pv;
  return found;
}

class Trials {
 public:
  Trials(const AttentionExpectOptions& options, std::int64_t n) : options_(options), n_(n) {
    const std::int64_t row = n * (options.d + options.d_v);
    const std::int64_t rows = std::max<std::int64_t>(kTrialProducts / row, 1);
    // Whole groups of heads; the last rows, which see most.
    group_ = options.heads / options.kv_heads;
    kv_heads_ = std::clamp<std::int64_t>(rows / (8 * group_), 1,
                                         std::min<std::int64_t>(4, options.kv_heads));
    rows_ = std::clamp<std::int64_t>(rows / (kv_heads_ * group_), 1, options.m);
  }

  [[nodiscard]] std::int64_t heads() const { return kv_heads_ * group_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] Draw draw(int trial, const Setting& setting) const {
    const auto values = [&](const char* name, std::int64_t heads, std::int64_t rows,
                            std::int64_t columns, double size) {
      const RandomStream stream(options_.seed, fmt::format("attention.{}.{}", name, trial));
      std::vector<float> x(static_cast<std::size_t>(heads * rows * columns));
      parallel_for(std::ssize(x), threads_of(options_.attention), [&](std::int64_t i) {
        x[static_cast<std::size_t>(i)] =
            static_cast<float>(size * stream.normal(static_cast<std::uint64_t>(i)));
      });
      return x;
    };
    // The products of d normal numbers times the softmax's scale.
    const double d = static_cast<double>(options_.d);
    const double own = options_.attention.softmax_scale > 0.0F
                           ? static_cast<double>(options_.attention.softmax_scale)
                           : 1.0 / std::sqrt(d);
    const double size = setting.spread / (own * std::sqrt(d));
    const CacheRule& rule = find_cache_rule(setting.cache);
    return {
        attention_tensor(values("q", heads(), rows_, options_.d, size), heads(), rows_, options_.d),
        cached_tensor(values("k", kv_heads_, n_, options_.d, 1.0), kv_heads_, n_, options_.d, rule),
        cached_tensor(values("v", kv_heads_, n_, options_.d_v, 1.0), kv_heads_, n_, options_.d_v,
                      rule)};
  }

  [[nodiscard]] AttentionError error(std::string of, const Setting& setting,
                                     const AttentionOptions& options) const {
    std::vector<double> codes;
    std::vector<double> inputs;
    for (int trial = 0; trial < std::min(kErrorTrials, options_.trials); ++trial) {
      const Draw one = draw(trial, setting);
      const AttentionReport report = attention_report(one.q, one.k, one.v, options);
      codes.push_back(report.against_codes.relative_l2);
      inputs.push_back(report.against_inputs.relative_l2);
    }
    return {std::move(of), quantiles(codes), quantiles(inputs)};
  }

  /// DeepSeek-V3.2's rows, in exact attention: its kernel reads them as BF16.
  [[nodiscard]] AttentionError error_of_rows(const Setting& setting) const {
    const auto values_of = [](std::span<const float> rows) {
      std::vector<float> v;
      for (std::size_t at = 0; at < rows.size(); at += kDeepSeekRowElements)
        v.insert(v.end(), rows.begin() + static_cast<std::ptrdiff_t>(at),
                 rows.begin() + static_cast<std::ptrdiff_t>(at) + kDeepSeekRowValues);
      return v;
    };
    std::vector<double> inputs;
    for (int trial = 0; trial < std::min(kErrorTrials, options_.trials); ++trial) {
      const Draw one = draw(trial, setting);
      const std::vector<float> held = read_deepseek_rows(pack_deepseek_rows(one.k.values));
      const std::vector<double> exact = attention_reference(
          one.inputs(), one.q.values, one.k.values, values_of(one.k.values), options_.attention);
      const std::vector<double> found = attention_reference(one.inputs(), one.q.values, held,
                                                            values_of(held), options_.attention);
      inputs.push_back(
          compare(std::span<const double>(exact), std::span<const double>(found)).relative_l2);
    }
    return {std::string(kDeepSeekCache), {}, quantiles(inputs)};
  }

 private:
  const AttentionExpectOptions& options_;
  std::int64_t n_;
  std::int64_t group_ = 1;
  std::int64_t kv_heads_ = 1;
  std::int64_t rows_ = 1;
};

constexpr std::array<std::string_view, 4> kMetrics{"relative_l2", "calc_diff", "one_minus_cosine",
                                                   "max_absolute"};

std::array<double, kMetrics.size()> metrics_of(const Comparison& c) {
  return {c.relative_l2, c.calc_diff, 1.0 - c.cosine, c.max_absolute};
}

class Expecting {
 public:
  explicit Expecting(const AttentionExpectOptions& options)
      : options_(options),
        setting_{options.spread, options.kv_cache, options.n},
        trials_(options, options.n) {}

  AttentionExpectation run() {
    AttentionExpectation e;
    e.options = options_;
    e.sample_heads = trials_.heads();
    e.sample_rows = trials_.rows();
    errors(e);
    right_outputs(e);
    faults(e);
    return e;
  }

 private:
  void errors(AttentionExpectation& e) const {
    Setting setting = setting_;
    for (const double spread : kSpreads) {
      setting.spread = spread;
      e.by_spread.push_back(
          trials_.error(fmt::format("{:g}", spread), setting, options_.attention));
    }
    setting = setting_;
    for (const std::int64_t part : {64, 16, 4, 1}) {
      setting.n = options_.n / part;
      if (setting.n >= std::max<std::int64_t>(1, options_.attention.causal ? options_.m : 1))
        e.by_length.push_back(
            Trials(options_, setting.n)
                .error(fmt::format("{}", setting.n), setting, options_.attention));
    }
    setting = setting_;
    for (const CacheRule& rule : cache_rules()) {
      setting.cache = rule.name;
      if (const auto options = options_for(options_.attention, rule.name))
        e.by_cache.push_back(trials_.error(std::string(rule.name), setting, *options));
    }
    setting.cache = "e4m3.head";
    if (options_.d == kDeepSeekRowElements && options_.d_v == kDeepSeekRowValues)
      e.by_cache.push_back(trials_.error_of_rows(setting));
  }

  void right_outputs(AttentionExpectation& e) {
    std::array<std::vector<double>, kMetrics.size()> metrics;
    std::vector<char> passes(attention_gate_texts().size(), 1);
    double squares = 0.0;
    double elements = 0.0;
    for (int trial = 0; trial < options_.trials; ++trial) {
      const Draw one = trials_.draw(trial, setting_);
      const std::vector<float> o = attention(one.inputs(), options_.attention).o;
      const AttentionGates gates(one.inputs(), options_.attention, options_.output);
      const CodeComparison c = gates.compare(o);
      const auto values = metrics_of(c.values);
      for (std::size_t i = 0; i < values.size(); ++i) metrics[i].push_back(values[i]);
      const std::vector<bool> own = gates.pass(c);
      for (std::size_t g = 0; g < passes.size(); ++g)
        if (!own[g]) passes[g] = 0;
      for (const float x : o) squares += static_cast<double>(x) * static_cast<double>(x);
      elements += static_cast<double>(o.size());
    }
    e.rms = std::sqrt(squares / elements);
    const double blocks = static_cast<double>(options_.heads * options_.m) /
                          static_cast<double>(trials_.heads() * trials_.rows());
    for (std::size_t i = 0; i < kMetrics.size(); ++i) {
      const double tail = i < 3 ? tail_of_whole(metrics[i], options_.risk)
                                : tail_of_maximum(metrics[i], options_.risk, blocks, false);
      limits_[i] = tail;
      e.metrics.push_back(
          {kMetrics[i], median(metrics[i]), *std::ranges::max_element(metrics[i]), tail});
      e.gates.push_back(
          {std::string(kMetrics[i]), fmt::format("{} <= {:.3g}", kMetrics[i], tail), true});
    }
    for (const AttentionGateText& gate : attention_gate_texts())
      e.gates.push_back({std::string(gate.name), std::string(gate.text), true});
    for (std::size_t g = 0; g < passes.size(); ++g)
      e.gates[kMetrics.size() + g].passes = passes[g] != 0;
  }

  [[nodiscard]] std::vector<char> passed(const AttentionGates& gates,
                                         const CodeComparison& c) const {
    const auto values = metrics_of(c.values);
    std::vector<char> found;
    for (std::size_t i = 0; i < values.size(); ++i)
      found.push_back(values[i] <= limits_[i] ? 1 : 0);
    for (const bool one : gates.pass(c)) found.push_back(one ? 1 : 0);
    return found;
  }

  /// One mistake of each name, and outputs that are wrong without one.
  void faults(AttentionExpectation& e) {
    std::vector<std::vector<double>> sizes;
    for (int trial = 0; trial < kFaultTrials; ++trial) {
      const Draw one = trials_.draw(trial, setting_);
      const AttentionInputs in = one.inputs();
      const AttentionGates gates(in, options_.attention, options_.output);
      const std::vector<float> right = attention(in, options_.attention).o;
      std::size_t index = 0;
      const auto add = [&](const std::string& name, const std::string& text,
                           const std::vector<float>& o) {
        const CodeComparison c = gates.compare(o);
        if (trial == 0) {
          e.faults.push_back({name, text, 0.0, std::vector<char>(e.gates.size(), 1)});
          sizes.emplace_back();
        }
        AttentionFault& fault = e.faults[index];
        sizes[index++].push_back(compare(std::span<const float>(right), o).relative_l2);
        const std::vector<char> pass = passed(gates, c);
        for (std::size_t g = 0; g < pass.size(); ++g)
          if (pass[g] != 0) fault.caught[g] = 0;
      };
      AttentionMistakes mistakes(in, options_.attention);
      mistakes.add_known();
      std::set<std::string> seen;
      for (const AttentionMistake& mistake : mistakes.all())
        if (seen.insert(mistake.name).second)
          add(mistake.name, mistake.text,
              attention_with(mistake.inputs, mistake.options, mistake.variant).o);
      add_outputs(right, add);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) e.faults[i].size = median(sizes[i]);
    // A mistake that these inputs do not show.
    std::erase_if(e.faults, [](const AttentionFault& f) { return f.size == 0.0; });
    std::ranges::stable_sort(e.faults, {}, &AttentionFault::size);
  }

  template <typename Add>
  void add_outputs(const std::vector<float>& right, const Add& add) const {
    std::vector<float> o = right;
    for (float& x : o) x = -x;
    add("negated", "the outputs are negated", o);
    add("zeros", "all outputs are 0", std::vector<float>(right.size(), 0.0F));
    o = right;
    std::fill(o.end() - std::min<std::int64_t>(std::ssize(o), options_.d_v), o.end(), 0.0F);
    add("never_written", "the last row is 0", o);
    for (const double factor : {1.01, 1.1}) {
      o = right;
      for (float& x : o) x = static_cast<float>(factor * static_cast<double>(x));
      add(fmt::format("gain_{:g}", factor), fmt::format("the outputs times {:g}", factor), o);
    }
  }

  const AttentionExpectOptions& options_;
  Setting setting_;
  Trials trials_;
  std::array<double, kMetrics.size()> limits_{};
};

}  // namespace

AttentionExpectation expect_attention(const AttentionExpectOptions& options) {
  const FloatEnvironment environment;
  check(options);
  return Expecting(options).run();
}

std::string describe(const AttentionExpectation& e) {
  const AttentionExpectOptions& o = e.options;
  std::string out = fmt::format(
      "attention of {} heads ({} of K and V), m = {}, n = {}, d = {}, d_v = {}{}: {} trials of {} "
      "heads and {}, seed {}\nlogits with a standard deviation of {:g}, K and V in {}, O in {}; "
      "right outputs have an RMS of {:.3g}\n",
      o.heads, o.kv_heads, o.m, o.n, o.d, o.d_v, o.attention.causal ? ", causal" : "", o.trials,
      e.sample_heads, counted(e.sample_rows, "row"), o.seed, o.spread, o.kv_cache,
      format(o.output).name, e.rms);
  const auto errors = [&](const char* of, const std::vector<AttentionError>& list) {
    const auto text = [](const ErrorQuantiles& q) {
      return fmt::format("{:.3g} ({:.3g} to {:.3g})", q.median, q.low, q.high);
    };
    out += fmt::format("  {:<18} {:>28} {:>28}\n", of, "FP64 on the codes", "on the inputs");
    for (const AttentionError& one : list)
      out += fmt::format("  {:<18} {:>28} {:>28}\n", one.of, text(one.codes), text(one.inputs));
  };
  out +=
      "errors of right outputs before their cast (relative L2): median (5 % and 95 % quantile)\n";
  errors("spread of logits", e.by_spread);
  errors("rows of K and V", e.by_length);
  errors("cache of K and V", e.by_cache);
  out += "errors of right outputs from FP64 on the codes\n";
  for (const MetricSpread& m : e.metrics)
    out += fmt::format("  {:<17} median {:<10.3g} largest {:<10.3g} at risk {:g}: {:.3g}\n", m.name,
                       m.median, m.largest, o.risk, m.tail);
  out += "gates, and what they miss\n";
  for (std::size_t g = 0; g < e.gates.size(); ++g) {
    std::vector<std::string> missed;
    for (const AttentionFault& f : e.faults)
      if (f.caught[g] == 0) missed.push_back(fmt::format("{} ({:.2g})", f.name, f.size));
    out += fmt::format("  {:<22} {}{}\n    misses {} of {}{}\n", e.gates[g].name, e.gates[g].text,
                       e.gates[g].passes ? "" : ": fails right outputs", missed.size(),
                       e.faults.size(), missed.empty() ? "" : ", the largest " + missed.back());
  }
  return out;
}

}  // namespace fp8lab
