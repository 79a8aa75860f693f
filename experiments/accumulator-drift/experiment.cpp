#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "accumulator-drift/drift.hpp"
#include "accumulator-drift/findings.hpp"
#include "accumulator-drift/published.hpp"
#include "accumulator-drift/slopes.hpp"
#include "accumulator-drift/sweep.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/cast/policy.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

/// "uniform operands".
std::string operands_of(Distribution d) {
  return d == Distribution::ones ? "operands that are all 1"
                                 : fmt::format("{} operands", to_string(d));
}

/// "sm90.wgmma.e4m3/128, K^0.02": the accumulator, its promotion interval, the fitted exponent.
std::string label(const Sweep& sweep, const Curve& curve) {
  std::string text = curve.accumulator;
  if (curve.interval != 0) text += fmt::format("/{}", curve.interval);
  const std::vector<double> slopes = sweep.slopes(curve);
  // The exact sum has no law of its own: its only error is the rounding of its output.
  return slopes.empty() || curve.accumulator == "exact"
             ? text
             : fmt::format("{}, K^{:.2f}", text, spread_of(slopes).mean);
}

Table error_table(const Sweep& sweep) {
  const std::int64_t outputs = sweep.settings().outputs();
  return row_table<Point>(
      "error", "Error of the accumulation against the exact sum of the same products",
      {{"operands", "", "e4m3 with amax scales, or bf16",
        [](const Point& p) { return p.curve.operands; }},
       {"distribution", "", "of the operands", [](const Point& p) { return p.curve.distribution; }},
       {"k", "1", "length of each dot product", &Point::k},
       {"accumulator", "", "registered model", [](const Point& p) { return p.curve.accumulator; }},
       {"promotion_interval", "1", "terms between promotions into FP32; 0 for none",
        [](const Point& p) { return p.curve.interval; }},
       {"outputs", "1", "dot products measured", [=](const Point&) { return outputs; }},
       {"relative_l2", "1", "|d - exact|_2 / |exact|_2 over the outputs",
        [](const Point& p) { return p.error.relative_l2; }},
       {"bias", "1", "sum sign(exact)(d - exact) / sum |exact|; negative: toward zero",
        [](const Point& p) { return p.error.mean_signed_relative; }},
       {"max_relative", "1", "largest |d - exact| / |exact|",
        [](const Point& p) { return p.error.max_relative; }},
       {"cosine_distance", "1", "1 - cosine similarity of the outputs and exact ones",
        [](const Point& p) { return 1.0 - p.error.cosine; }}},
      sweep.points());
}

Series labelled_series(const Sweep& sweep, const Curve& curve) {
  Series series = sweep.series(curve);
  series.label = label(sweep, curve);
  series.style = curve.interval == 0 ? Series::Style::lines_points : Series::Style::dashed;
  return series;
}

Plot plot_against_k(const Sweep& sweep, Distribution d) {
  Plot plot;
  plot.name = fmt::format("error_against_k_{}", to_string(d));
  plot.title = fmt::format("Accumulation error on E4M3, {}; dashed: promoted every {}",
                           operands_of(d), kDeepSeekInterval);
  plot.x = {"length of the dot product K (terms)", true, 2};
  plot.y = {"relative L2 error (%)", true};
  std::map<std::string, std::size_t> places;
  for (const Curve& curve : sweep.curves(d)) {
    if (curve.operands != OperandFormat::e4m3) continue;
    Series series = labelled_series(sweep, curve);
    const auto [own, first] = places.try_emplace(curve.accumulator, plot.series.size());
    if (!first) series.like = own->second;
    plot.series.push_back(std::move(series));
  }
  return in_percent(std::move(plot));
}

Plot plot_rounding_law(const Sweep& sweep) {
  Plot plot;
  plot.name = "rounding_law";
  plot.title = "Accumulation error against K on BF16 operands, where only the accumulator rounds";
  plot.x = {"length of the dot product K (terms)", true, 2};
  plot.y = {"relative L2 error (%)", true};
  std::map<std::string, std::size_t> places;
  for (const Distribution d : sweep.distributions())
    for (const Curve& curve : sweep.curves(d)) {
      // Two distributions make the point; the table has all of them.
      if (curve.operands != OperandFormat::bf16 || d == Distribution::correlated) continue;
      Series series = labelled_series(sweep, curve);
      series.label = fmt::format("{} {}", to_string(d), series.label);
      if (d != Distribution::uniform) series.style = Series::Style::dashed;
      const auto [own, first] = places.try_emplace(curve.accumulator, plot.series.size());
      if (!first) series.like = own->second;
      plot.series.push_back(std::move(series));
    }
  return in_percent(std::move(plot));
}

Plot plot_against_interval(const Sweep& sweep) {
  const std::vector<std::int64_t>& ks = sweep.settings().promotion_k;
  Plot plot;
  plot.name = "error_against_promotion_interval";
  plot.x = {"promotion interval (terms)", true, 2};
  plot.y = {"relative L2 error (%)", true};
  if (ks.empty()) return plot;
  const std::int64_t k = *std::max_element(ks.begin(), ks.end());
  plot.title = fmt::format(
      "Accumulation error against the promotion interval, K = {}, E4M3; rightmost: none", k);
  for (const std::string& name : sweep.settings().promoted)
    for (const Distribution d : sweep.distributions()) {
      Series series{fmt::format("{}, {}", name, to_string(d)), {}, {}};
      for (const std::int64_t interval : sweep.settings().promotion_intervals)
        if (const Comparison* error = sweep.find({OperandFormat::e4m3, d, name, interval}, k)) {
          series.x.push_back(static_cast<double>(interval));
          series.y.push_back(error->relative_l2);
        }
      if (const Comparison* error = sweep.find({OperandFormat::e4m3, d, name, 0}, k)) {
        series.x.push_back(static_cast<double>(k));  // one accumulator for all of K
        series.y.push_back(error->relative_l2);
      }
      plot.series.push_back(std::move(series));
    }
  return in_percent(std::move(plot));
}

constexpr std::int64_t kOnesLength = 32768;  // twice where the sum of ones sticks

struct RunningSumResult {
  Table table;
  Plot plot;
  std::string finding;
};

RunningSumResult record_running_sum(const RunContext& context, Distribution d, std::int64_t k,
                                    std::int64_t step) {
  const QuantizedOperands q = quantize_unscaled(make_operands({d, 1, 1, k, 0.0}, context.seed),
                                                kNvidiaSatfinite, context.backend);
  const RunningSums sums =
      running_sums(q, find_instruction_model(kHopper).accumulator, kDeepSeekInterval, step);
  RunningSumResult result{
      Table(fmt::format("running_sum_{}", to_string(d)),
            fmt::format("Running sum of one dot product, {}, {}", operands_of(d), kHopper),
            {{"k", "1", "products summed so far"},
             {"exact", "1", "exact sum of the same E4M3 codes, in units of the operands"},
             {"unpromoted", "1", "one accumulator for all of K"},
             {"promoted", "1", "promoted into FP32 every 128 terms"}}),
      {},
      {}};
  result.finding = fmt::format(
      "One sum of {} products of {}, {}: exact {:.1f}, without promotion {:.1f}, "
      "promoted every {} {:.1f}.",
      static_cast<std::int64_t>(sums.k.back()), operands_of(d), kHopper, sums.exact.back(),
      sums.unpromoted.back(), kDeepSeekInterval, sums.promoted.back());
  for (std::size_t i = 0; i < sums.k.size(); ++i)
    result.table.add_row({static_cast<std::int64_t>(sums.k[i]), sums.exact[i], sums.unpromoted[i],
                          sums.promoted[i]});
  Plot& plot = result.plot;
  plot.name = result.table.name();
  plot.title = fmt::format("Running sum of one dot product of {}, {}", operands_of(d), kHopper);
  plot.x = {"products summed k (terms)", false};
  plot.y = {"sum (units of the operands squared)", false};
  plot.series = {{"exact", sums.k, sums.exact, Series::Style::lines},
                 {"no promotion", sums.k, sums.unpromoted, Series::Style::lines},
                 {"promoted every 128", {}, {}, Series::Style::points}};
  constexpr std::size_t kEvery = 8;  // points that leave the line below visible
  for (std::size_t i = kEvery - 1; i < sums.k.size(); i += kEvery) {
    plot.series[2].x.push_back(sums.k[i]);
    plot.series[2].y.push_back(sums.promoted[i]);
  }
  return result;
}

constexpr Pipeline kPipelines[] = {
    {.name = "hopper, no promotion", .accumulator = kHopper},
    {.name = "hopper, promoted every 128",
     .accumulator = kHopper,
     .promotion_interval = kDeepSeekInterval},
    {.name = "seed listing, no promotion",
     .accumulator = "seed.listing",
     .seed_cast = true,
     .bf16_output = false},
    {.name = "seed listing, promoted every 128",
     .accumulator = "seed.listing",
     .promotion_interval = kDeepSeekInterval,
     .seed_cast = true,
     .bf16_output = false},
};

struct StageSwitch {
  std::string_view name;
  bool Stages::*member;
};
constexpr StageSwitch kStages[] = {{"input quantization", &Stages::input_quantization},
                                   {"product rounding", &Stages::product_rounding},
                                   {"accumulation", &Stages::accumulation},
                                   {"output rounding", &Stages::output_rounding}};

Table split_table(const Sweep& sweep) {
  Table table("error_split", "Where the error of a whole product comes from, one stage at a time",
              {{"distribution", "", "of the BF16 operands"},
               {"k", "1", "length of each dot product"},
               {"pipeline", "", "how the product is computed"},
               {"stage", "", "the stage that is isolated"},
               {"alone", "1", "relative L2 error with this stage on and all others exact"},
               {"without", "1", "relative L2 error with this stage exact and all others on"},
               {"total", "1", "relative L2 error with every stage on"}});
  const RunContext& context = sweep.context();
  for (const std::int64_t k : sweep.settings().split_k)
    for (const Distribution d : sweep.distributions()) {
      const Bf16Operands operands = make_operands(sweep.spec(d, k), context.seed);
      for (const Pipeline& pipeline : kPipelines) {
        const double total =
            pipeline_error(operands, pipeline, {}, context.threads, context.backend);
        for (const StageSwitch& stage : kStages) {
          Stages alone{false, false, false, false};
          Stages without{};
          alone.*stage.member = true;
          without.*stage.member = false;
          table.add_row(
              {std::string(to_string(d)), k, std::string(pipeline.name), std::string(stage.name),
               pipeline_error(operands, pipeline, alone, context.threads, context.backend),
               pipeline_error(operands, pipeline, without, context.threads, context.backend),
               total});
        }
      }
    }
  return table;
}

}  // namespace

Results accumulator_drift(const RunContext& context) {
  Sweep sweep(context);
  sweep.run();
  Results results;
  add_promotion_finding(sweep, results.findings);
  add_slope_findings(sweep, results.findings);
  add_nearest_finding(sweep, results.findings);
  results.tables = {error_table(sweep), quoted_repeat_table(sweep), slope_table(sweep),
                    slope_repeat_table(sweep), split_table(sweep)};
  context.progress(0.9);
  add_published_setups(sweep, results);
  for (const Distribution d : sweep.distributions())
    results.plots.push_back(plot_against_k(sweep, d));
  results.plots.push_back(plot_rounding_law(sweep));
  results.plots.push_back(plot_against_interval(sweep));

  const std::pair<Distribution, std::int64_t> sums_of[] = {
      {Distribution::uniform, sweep.settings().running_sum_k}, {Distribution::ones, kOnesLength}};
  for (const auto& [d, k] : sums_of) {
    RunningSumResult sums = record_running_sum(context, d, k, sweep.settings().running_sum_step);
    results.findings.push_back(sums.finding);
    results.tables.push_back(std::move(sums.table));
    results.plots.push_back(std::move(sums.plot));
  }
  results.headline = headline_of(sweep);
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments
