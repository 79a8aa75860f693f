#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attention-fp8/caches.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<double> deviations;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 0;
  std::int64_t head_size = 0;
  std::vector<double> offsets;
  std::vector<double> thresholds;
  std::vector<const Format*> p_formats;
  std::vector<TileOrder> tile_orders;
  std::size_t repeats = 0;
  CacheSettings caches;

  static constexpr auto fields() {
    return std::tuple{field("deviations", &Settings::deviations),
                      field("lengths", &Settings::lengths),
                      field("queries", &Settings::queries),
                      field("head_size", &Settings::head_size),
                      field("offsets", &Settings::offsets),
                      field("thresholds", &Settings::thresholds),
                      field("p_formats", &Settings::p_formats, find_format),
                      field("tile_orders", &Settings::tile_orders, find_tile_order),
                      field("repeats", &Settings::repeats),
                      group(&Settings::caches, field("caches", &CacheSettings::rules, cache_called),
                            field("cache_lengths", &CacheSettings::lengths),
                            field("value_sizes", &CacheSettings::value_sizes),
                            field("cache_queries", &CacheSettings::queries),
                            field("cache_deviation", &CacheSettings::deviation))};
  }
};

/// What is done with P.
struct Kernel {
  double offset = 0.0;
  double threshold = 0.0;
  const Format* p_format = nullptr;
  TileOrder tile_order = TileOrder::last_to_first;

  friend bool operator==(const Kernel&, const Kernel&) = default;
};

/// A kernel at one spread and length.
struct AttentionPoint {
  std::int64_t length = 0;
  double deviation = 0.0;
  Kernel kernel;
  double error = 0.0;
  double saturated = 0.0;    ///< share of P
  double underflowed = 0.0;  ///< share of P
  double stale = 0.0;        ///< rows that kept a maximum that grew, for each tile and row
};

/// A row of flash-attention's pull request 2694: a B300, 8192 keys, threshold 4, P in E4M3.
struct PublishedError {
  double deviation;
  double offset_8;
  double offset_4;
};
constexpr std::int64_t kPublishedLength = 8192;
constexpr double kPublishedThreshold = 4.0;
constexpr std::array<PublishedError, 5> kPublishedErrors{{{0.25, 0.027, 0.027},
                                                          {0.5, 0.031, 0.028},
                                                          {1.0, 0.136, 0.027},
                                                          {1.5, 0.305, 0.024},
                                                          {2.0, 0.361, 0.022}}};

std::vector<Kernel> kernels_of(const Settings& s) {
  std::vector<Kernel> kernels;
  for (const Format* format : s.p_formats)
    for (const TileOrder order : s.tile_orders)
      for (const double threshold : s.thresholds)
        for (const double offset : s.offsets) kernels.push_back({offset, threshold, format, order});
  return kernels;
}

std::vector<std::uint8_t> normal_codes(const RunContext& context, std::string_view stream,
                                       std::int64_t count) {
  const RandomStream random = context.random(stream);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
  std::vector<std::uint8_t> codes(values.size());
  if (!try_cast_on(context.backend, FormatId::e4m3fn, kNvidiaSatfinite, values, codes))
    encode(values, codes, {.format = FormatId::e4m3fn, .policy = kNvidiaSatfinite});
  return codes;
}

/// Q, K and V of one length.
struct Tensors {
  std::vector<std::uint8_t> q, k, v;
  std::int64_t queries;
  std::int64_t length;
  std::int64_t head_size;

  Tensors(const RunContext& context, const Settings& s, std::int64_t n)
      : q(normal_codes(context, "attention-fp8/q", s.queries * s.head_size)),
        k(normal_codes(context, "attention-fp8/k", n * s.head_size)),
        v(normal_codes(context, "attention-fp8/v", n * s.head_size)),
        queries(s.queries),
        length(n),
        head_size(s.head_size) {}
  [[nodiscard]] AttentionInputs inputs() const {
    return {{FormatId::e4m3fn, q, 1, queries, head_size},
            {FormatId::e4m3fn, k, 1, length, head_size},
            {FormatId::e4m3fn, v, 1, length, head_size}};
  }
};

AttentionOptions options_of(const RunContext& context, const Settings& s, const Kernel& kernel,
                            double deviation) {
  AttentionOptions options;
  options.qk_model = "sm100.tcgen05.e4m3";
  options.pv_model =
      kernel.p_format->id == FormatId::e5m2 ? "sm100.tcgen05.e5m2.e4m3" : "sm100.tcgen05.e4m3";
  options.softmax_scale =
      static_cast<float>(deviation / std::sqrt(static_cast<double>(s.head_size)));
  options.p_offset = static_cast<float>(kernel.offset);
  options.rescale_threshold = static_cast<float>(kernel.threshold);
  options.p_format = kernel.p_format->id;
  options.tile_order = kernel.tile_order;
  options.threads = 1;
  options.backend = context.backend;
  return options;
}

AttentionPoint measure_kernel(const AttentionInputs& in, const AttentionOptions& options,
                              const Kernel& kernel, const std::vector<double>& exact,
                              double deviation) {
  const AttentionResult result = attention(in, options);
  AttentionTile total;
  for (const AttentionTile& tile : result.tiles) total += tile;
  const auto elements = static_cast<double>(total.elements);
  const double rows = static_cast<double>(in.q.rows) * static_cast<double>(result.tiles.size());
  return {in.k.rows,
          deviation,
          kernel,
          compare(exact, result.o).relative_l2,
          static_cast<double>(total.saturated) / elements,
          static_cast<double>(total.underflowed) / elements,
          static_cast<double>(total.stale) / rows};
}

std::vector<AttentionPoint> measure_draw(const RunContext& context, const Settings& s) {
  const std::vector<Kernel> kernels = kernels_of(s);
  const std::size_t spreads = s.deviations.size();
  std::vector<Tensors> tensors;
  for (const std::int64_t length : s.lengths) tensors.emplace_back(context, s, length);
  std::vector<AttentionPoint> points(s.lengths.size() * spreads * kernels.size());
  parallel_points(context, s.lengths.size() * spreads, [&](std::size_t i) {
    const double deviation = s.deviations[i % spreads];
    const AttentionInputs in = tensors[i / spreads].inputs();
    const std::vector<double> exact =
        attention_reference(in, dequantize(in.q), dequantize(in.k), dequantize(in.v),
                            options_of(context, s, kernels.front(), deviation));
    for (std::size_t at = 0; at < kernels.size(); ++at)
      points[i * kernels.size() + at] = measure_kernel(
          in, options_of(context, s, kernels[at], deviation), kernels[at], exact, deviation);
  });
  return points;
}

Table error_table(const std::vector<AttentionPoint>& points) {
  using P = AttentionPoint;
  return row_table<P>(
      "errors", "Relative L2 error of O against FP64 on the same codes",
      {{"length", "rows", "of K and V", &P::length},
       {"deviation", "1", "standard deviation of the logits", &P::deviation},
       {"offset", "octaves", "P is 2^offset times the exponential",
        [](const P& p) { return p.kernel.offset; }},
       {"threshold", "octaves", "by which the maximum may be stale",
        [](const P& p) { return p.kernel.threshold; }},
       {"p_format", "", "of P", [](const P& p) { return p.kernel.p_format->name; }},
       {"tile_order", "", "of K and V", [](const P& p) { return p.kernel.tile_order; }},
       {"error", "1", "relative L2 error of O", &P::error},
       {"saturated", "1", "share of P above the largest number of its format", &P::saturated},
       {"underflowed", "1", "share of P that became zero", &P::underflowed},
       {"stale", "1", "share of rows and tiles with a stale maximum", &P::stale}},
      points);
}

std::string kernel_name(const Kernel& kernel) {
  return fmt::format(
      "P in {} times 2^{:g}, stale by 2^{:g}, {}", kernel.p_format->name, kernel.offset,
      kernel.threshold,
      kernel.tile_order == TileOrder::last_to_first ? "last to first" : "first to last");
}

/// Errors of all draws at a point, which `measure_draw` puts at one place in each.
std::vector<double> errors_at(const std::vector<std::vector<AttentionPoint>>& draws,
                              std::size_t at) {
  return each_repeat(draws, [&](const auto& points) { return points[at].error; });
}

/// The kernel of the published table, with this offset.
bool is_published(const AttentionPoint& p, double offset) {
  return p.length == kPublishedLength &&
         p.kernel == Kernel{offset, kPublishedThreshold, &format(FormatId::e4m3fn),
                            TileOrder::last_to_first};
}

/// Published rows beside ours; none where this run has not the published kernel.
Table published_errors(const std::vector<AttentionPoint>& points) {
  Table table(
      "published", "The published table of FlashAttention-4 in FP8 on a B300 (pull request 2694)",
      {{"deviation", "1", "standard deviation of the logits"},
       {"offset", "octaves", "P is 2^offset times the exponential; threshold 4"},
       {"error", "1", "relative L2 error of O against FP64, this run"},
       {"published", "1", "as printed there: a B300 against its BF16 kernel, other draws"}});
  for (const AttentionPoint& p : points)
    for (const PublishedError& row : kPublishedErrors) {
      if (p.deviation != row.deviation) continue;
      if (is_published(p, 8.0)) table.add_row({p.deviation, 8.0, p.error, row.offset_8});
      if (is_published(p, 4.0)) table.add_row({p.deviation, 4.0, p.error, row.offset_4});
    }
  return table;
}

Plot error_plot(const std::vector<std::vector<AttentionPoint>>& draws, const Settings& s) {
  const std::int64_t length = s.lengths.back();
  Plot plot{"errors",
            fmt::format("Error of FP8 attention over the spread of its logits ({} keys, head size "
                        "{}); published: a B300, 8192 keys",
                        length, s.head_size),
            {"standard deviation of the logits"},
            {"relative L2 error of O", true},
            {}};
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < draws.front().size(); ++i)
    if (draws.front()[i].length == length &&
        draws.front()[i].kernel.tile_order == s.tile_orders.front())
      places.push_back(i);
  plot.series = series_by(
      places,
      [&](std::size_t i) {
        const Kernel& kernel = draws.front()[i].kernel;
        return fmt::format("{}, offset {:g}, threshold {:g}", kernel.p_format->name, kernel.offset,
                           kernel.threshold);
      },
      [&](std::size_t i) {
        const Spread spread = spread_of(errors_at(draws, i));
        return std::tuple{draws.front()[i].deviation, spread.mean, spread.min, spread.max};
      });
  for (const bool eight : {true, false}) {
    Series series{
        fmt::format("published, offset {}", eight ? 8 : 4), {}, {}, Series::Style::dashed};
    for (const PublishedError& row : kPublishedErrors) {
      series.x.push_back(row.deviation);
      series.y.push_back(eight ? row.offset_8 : row.offset_4);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

std::string setup_text(const Settings& s) {
  return fmt::format("{} queries, head size {}, sm100.tcgen05", s.queries, s.head_size);
}

/// The error of each kernel at the widest spread and the longest K.
std::vector<std::string> kernel_findings(const std::vector<std::vector<AttentionPoint>>& draws,
                                         const Settings& s) {
  std::vector<std::string> findings;
  const double widest = *std::ranges::max_element(s.deviations);
  const std::int64_t longest = *std::ranges::max_element(s.lengths);
  for (std::size_t i = 0; i < draws.front().size(); ++i) {
    const AttentionPoint& p = draws.front()[i];
    if (p.deviation != widest || p.length != longest) continue;
    findings.push_back(
        fmt::format("{}: relative L2 error {} at a spread of {:g}, {} keys ({}; {}; draws: {}).",
                    kernel_name(p.kernel), log_interval_text(errors_at(draws, i)), widest, longest,
                    setup_text(s), kLogIntervalMeaning, draws.size()));
  }
  return findings;
}

/// Offset 8 against 4 at the widest spread, where both were computed.
std::optional<Headline> attention_headline(const std::vector<std::vector<AttentionPoint>>& draws,
                                           const Settings& s) {
  const double widest = *std::ranges::max_element(s.deviations);
  std::array<std::string, 2> errors;
  for (std::size_t i = 0; i < draws.front().size(); ++i)
    for (const std::size_t which : {0U, 1U}) {
      const AttentionPoint& p = draws.front()[i];
      if (p.deviation == widest && is_published(p, which == 0 ? 8.0 : 4.0))
        errors[which] = fmt::format("{:.1f} %", 100.0 * spread_of(errors_at(draws, i)).mean);
    }
  if (errors[0].empty() || errors[1].empty()) return std::nullopt;
  return Headline{.title = "A stale maximum saturates P in attention",
                  .sentence = fmt::format(
                      "With P times 2^8 and a maximum that may be stale by 2^4, O is {} off "
                      "at logits with a standard deviation of {:g} ({}; published for a "
                      "B300: 36.1 % at 2).",
                      errors[0], widest, setup_text(s)),
                  .plot = "errors",
                  .advice = "Keep offset + threshold below log2(448) = 8.8 for P in E4M3.",
                  .measure = "relative L2 error of O",
                  .failing = errors[0],
                  .mitigation = "offset 4",
                  .mitigated = errors[1],
                  .curves = {{"e4m3fn, offset 8", "offset 8"},
                             {"published, offset 8", "offset 8, published for a B300"},
                             {"e4m3fn, offset 4", "offset 4"}}};
}

void add_caches(const RunContext& context, const Settings& s, Results& results) {
  const auto draws = measure_repeats(
      context, s.repeats, [&](const RunContext& one) { return measure_caches(one, s.caches); });
  std::vector<Table> tables;
  for (const auto& points : draws) tables.push_back(cache_table(points));
  for (Table& table : join_repeats(tables, {"stored_error", "error"}))
    results.tables.push_back(std::move(table));
  results.plots.push_back(cache_plot(draws, s.caches));
  for (std::string& finding : cache_findings(draws, s.caches))
    results.findings.push_back(std::move(finding));
}

}  // namespace

Results attention_fp8(const RunContext& context) {
  auto settings = read_parameters<Settings>(context.parameters);
  settings.caches.head_size = settings.head_size;
  const auto draws = measure_repeats(context, settings.repeats, [&](const RunContext& one) {
    return measure_draw(one, settings);
  });
  std::vector<Table> errors;
  std::vector<Table> published;
  for (const auto& points : draws) {
    errors.push_back(error_table(points));
    published.push_back(published_errors(points));
  }
  Results results;
  results.tables = join_repeats(errors, {"error", "saturated", "underflowed", "stale"});
  for (Table& table : join_repeats(published, {"error"}))
    results.tables.push_back(std::move(table));
  results.plots = {error_plot(draws, settings)};
  results.findings = kernel_findings(draws, settings);
  add_caches(context, settings, results);
  results.headline = attention_headline(draws, settings);
  return results;
}

}  // namespace fp8lab::experiments
