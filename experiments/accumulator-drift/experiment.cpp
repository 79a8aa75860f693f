#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "accumulator-drift/drift.hpp"
#include "accumulator-drift/sweep.hpp"
#include "fp8lab/cast/policy.hpp"

namespace fp8lab::experiments {
namespace {

/// "sm90.wgmma.e4m3/128, K^0.02": the accumulator, its promotion interval, the fitted exponent.
std::string label(const Sweep& sweep, const Curve& curve) {
  std::string text = curve.accumulator;
  if (curve.interval != 0) text += fmt::format("/{}", curve.interval);
  const LineFit fit = sweep.slope(curve);
  return std::isnan(fit.slope) ? text : fmt::format("{}, K^{:.2f}", text, fit.slope);
}

Table error_table(const Sweep& sweep) {
  Table table("error", "Error of the accumulation against the exact sum of the same products",
              {{"operands", "", "e4m3 with amax scales, or bf16"},
               {"distribution", "", "of the operands"},
               {"k", "1", "length of each dot product"},
               {"accumulator", "", "registered model"},
               {"promotion_interval", "1", "terms between promotions into FP32; 0 for none"},
               {"outputs", "1", "dot products measured"},
               {"relative_l2", "1", "|d - exact|_2 / |exact|_2 over the outputs"},
               {"bias", "1", "sum sign(exact)(d - exact) / sum |exact|; negative: toward zero"},
               {"max_relative", "1", "largest |d - exact| / |exact|"},
               {"cosine_distance", "1", "1 - cosine similarity of the outputs and exact ones"}});
  const Parameters& p = sweep.context().parameters;
  const std::int64_t outputs = p.integer("rows") * p.integer("columns");
  for (const Point& point : sweep.points())
    table.add_row({std::string(to_string(point.curve.operands)),
                   std::string(to_string(point.curve.distribution)), point.k,
                   point.curve.accumulator, point.curve.interval, outputs, point.error.relative_l2,
                   point.error.mean_signed_relative, point.error.max_relative,
                   1.0 - point.error.cosine});
  return table;
}

Table slope_table(const Sweep& sweep) {
  const Parameters& p = sweep.context().parameters;
  Table table("slopes",
              fmt::format("Fitted exponents: relative L2 error ~ K^slope (e4m3: {} <= K <= {})",
                          p.integer("fit_k_min"), p.integer("fit_k_max")),
              {{"operands", "", "e4m3 with amax scales, or bf16"},
               {"distribution", "", "of the operands"},
               {"accumulator", "", "registered model"},
               {"promotion_interval", "1", "terms between promotions; 0 for none"},
               {"slope", "1", "least squares of log2 error on log2 K"},
               {"standard_error", "1", "of the slope, from the residuals"},
               {"points", "1", "lengths fitted"}});
  for (const Distribution d : sweep.distributions())
    for (const Curve& curve : sweep.curves(d)) {
      const LineFit fit = sweep.slope(curve);
      table.add_row({std::string(to_string(curve.operands)), std::string(to_string(d)),
                     curve.accumulator, curve.interval, fit.slope, fit.slope_standard_error,
                     std::int64_t{fit.points}});
    }
  return table;
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
  plot.title = fmt::format("Accumulation error on E4M3, {} operands; dashed: promoted every {}",
                           to_string(d), kDeepSeekInterval);
  plot.x = {"length of the dot product K (terms)", true, 2};
  plot.y = {"relative L2 error (1)", true};
  for (const Curve& curve : sweep.curves(d))
    if (curve.operands == OperandFormat::e4m3) plot.series.push_back(labelled_series(sweep, curve));
  return plot;
}

Plot plot_rounding_law(const Sweep& sweep) {
  Plot plot;
  plot.name = "rounding_law";
  plot.title = "Accumulation error against K on BF16 operands, where only the accumulator rounds";
  plot.x = {"length of the dot product K (terms)", true, 2};
  plot.y = {"relative L2 error (1)", true};
  for (const Distribution d : sweep.distributions())
    for (const Curve& curve : sweep.curves(d)) {
      if (curve.operands != OperandFormat::bf16) continue;
      plot.series.push_back(labelled_series(sweep, curve));
      Series& series = plot.series.back();
      series.label = fmt::format("{}, {}", to_string(d), series.label);
      if (d != Distribution::uniform) series.style = Series::Style::dashed;
    }
  return plot;
}

Plot plot_against_interval(const Sweep& sweep) {
  const std::vector<std::int64_t> ks = sweep.context().parameters.integers("promotion_k");
  const std::vector<std::int64_t> intervals =
      sweep.context().parameters.integers("promotion_intervals");
  Plot plot;
  plot.name = "error_against_promotion_interval";
  plot.x = {"promotion interval (terms)", true, 2};
  plot.y = {"relative L2 error (1)", true};
  if (ks.empty()) return plot;
  const std::int64_t k = *std::max_element(ks.begin(), ks.end());
  plot.title = fmt::format(
      "Accumulation error against the promotion interval, K = {}, E4M3; rightmost: none", k);
  for (const std::string& name : sweep.context().parameters.texts("promoted_accumulators"))
    for (const Distribution d : sweep.distributions()) {
      Series series{fmt::format("{}, {}", name, to_string(d)), {}, {}};
      for (const std::int64_t interval : intervals)
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
  return plot;
}

struct RunningSumResult {
  Table table;
  Plot plot;
};

RunningSumResult record_running_sum(const RunContext& context, Distribution d, std::int64_t k,
                                    std::int64_t step) {
  const QuantizedOperands q =
      quantize_unscaled(make_operands({d, 1, 1, k, 0.0}, context.seed), kNvidiaSatfinite);
  const RunningSums sums =
      running_sums(q, find_instruction_model(kHopper).accumulator, kDeepSeekInterval, step);
  RunningSumResult result{
      Table(fmt::format("running_sum_{}", to_string(d)),
            fmt::format("Running sum of one dot product, {} operands, {}", to_string(d), kHopper),
            {{"k", "1", "products summed so far"},
             {"exact", "1", "exact sum of the same E4M3 codes, in units of the operands"},
             {"unpromoted", "1", "one accumulator for all of K"},
             {"promoted", "1", "promoted into FP32 every 128 terms"}}),
      {}};
  for (std::size_t i = 0; i < sums.k.size(); ++i)
    result.table.add_row({static_cast<std::int64_t>(sums.k[i]), sums.exact[i], sums.unpromoted[i],
                          sums.promoted[i]});
  Plot& plot = result.plot;
  plot.name = result.table.name();
  plot.title =
      fmt::format("Running sum of one dot product of {} operands, {}", to_string(d), kHopper);
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
  for (const std::int64_t k : context.parameters.integers("split_k"))
    for (const Distribution d : sweep.distributions()) {
      const Bf16Operands operands = make_operands(sweep.spec(d, k), context.seed);
      for (const Pipeline& pipeline : kPipelines) {
        const double total = pipeline_error(operands, pipeline, {}, context.threads);
        for (const StageSwitch& stage : kStages) {
          Stages alone{false, false, false, false};
          Stages without{};
          alone.*stage.member = true;
          without.*stage.member = false;
          table.add_row({std::string(to_string(d)), k, std::string(pipeline.name),
                         std::string(stage.name),
                         pipeline_error(operands, pipeline, alone, context.threads),
                         pipeline_error(operands, pipeline, without, context.threads), total});
        }
      }
    }
  return table;
}

/// The setups that publications quote, under Hopper's model.
Table published_table(const RunContext& context, std::vector<std::string>& findings) {
  Table table(
      "published_setups",
      fmt::format("The setups that publications quote, under {}; operands cast without a scale",
                  kHopper),
      {{"distribution", "", "of the operands"},
       {"k", "1", "length of each dot product"},
       {"promotion_interval", "1", "terms between promotions; 0 for none"},
       {"outputs", "1", "dot products measured"},
       {"relative_l2", "1", "|d - exact|_2 / |exact|_2"},
       {"min_percent_low", "%", "smallest shortfall (|exact| - d sign(exact)) / |exact|"},
       {"max_percent_low", "%", "largest shortfall"},
       {"max_relative", "1", "largest |d - exact| / |exact|"},
       {"cosine", "1", "cosine similarity of the outputs and the exact ones"}});
  const std::int64_t rows = context.parameters.integer("published_rows");
  const AccumulatorModel& model = find_instruction_model(kHopper).accumulator;
  for (const auto& [d, k] : {std::pair{Distribution::uniform, std::int64_t{4096}},
                             std::pair{Distribution::normal, std::int64_t{4096}},
                             std::pair{Distribution::uniform, std::int64_t{16384}},
                             std::pair{Distribution::ones, std::int64_t{32768}}}) {
    const std::int64_t side = d == Distribution::ones ? 1 : rows;
    const QuantizedOperands q =
        quantize_unscaled(make_operands({d, side, side, k, 0.0}, context.seed), kNvidiaSatfinite);
    const std::vector<double> exact = exact_product(q);
    for (const std::int64_t interval : {std::int64_t{0}, kDeepSeekInterval}) {
      const std::vector<double> got = accumulate(q, model, interval, context.threads);
      double low = std::numeric_limits<double>::infinity();
      double high = -low;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double shortfall = 100.0 * (exact[i] - got[i]) / exact[i];
        low = std::min(low, shortfall);
        high = std::max(high, shortfall);
      }
      const Comparison error = compare(exact, got);
      table.add_row({std::string(to_string(d)), k, interval, side * side, error.relative_l2, low,
                     high, error.max_relative, 1.0 - error.cosine});
      findings.push_back(fmt::format(
          "{} operands, K = {}, {}, {}: {:.3g} % to {:.3g} % low, relative L2 {:.3g} %, cosine "
          "{:.6f} ({} outputs).",
          to_string(d), k, kHopper,
          interval == 0 ? "no promotion" : fmt::format("promoted every {}", interval), low, high,
          100.0 * error.relative_l2, error.cosine, side * side));
    }
  }
  return table;
}

void add_slope_findings(const Sweep& sweep, std::vector<std::string>& findings) {
  const Parameters& p = sweep.context().parameters;
  for (const Distribution d : sweep.distributions())
    for (const OperandFormat operands : {OperandFormat::e4m3, OperandFormat::bf16}) {
      std::string exponents;
      for (const Curve& curve : sweep.curves(d)) {
        const bool of_interest =
            curve.accumulator == kHopper || curve.accumulator.starts_with("sequential14");
        if (!of_interest || curve.interval != 0 || curve.operands != operands) continue;
        const LineFit fit = sweep.slope(curve);
        if (!exponents.empty()) exponents += ", ";
        exponents += fmt::format("{} {:.2f} +- {:.2f}", curve.accumulator, fit.slope,
                                 fit.slope_standard_error);
      }
      if (exponents.empty()) continue;
      const std::string window =
          operands == OperandFormat::e4m3
              ? fmt::format("E4M3, {} <= K <= {}", p.integer("fit_k_min"), p.integer("fit_k_max"))
              : "BF16, every bf16_k";
      findings.push_back(fmt::format(
          "Exponents of K in the relative L2 error, {} operands ({}), no promotion: {}.",
          to_string(d), window, exponents));
    }
}

/// Where nearest rounding stops being harmless: sums whose unit outgrows the products.
void add_nearest_findings(const Sweep& sweep, std::vector<std::string>& findings) {
  for (const Distribution d : sweep.distributions())
    for (const std::int64_t k : sweep.context().parameters.integers("k")) {
      const Curve nearest{OperandFormat::e4m3, d, "sequential14.rne", 0};
      const Curve truncated{OperandFormat::e4m3, d, "sequential14.rz", 0};
      const Comparison* rne = sweep.find(nearest, k);
      const Comparison* rz = sweep.find(truncated, k);
      if (rne == nullptr || rz == nullptr || (k != 1024 && k != 16384)) continue;
      findings.push_back(fmt::format(
          "14 bits, one addition at a time, {} operands, K = {}: relative L2 error {:.3g} % "
          "rounding to nearest (bias {:+.2g} %), {:.3g} % truncating (bias {:+.2g} %).",
          to_string(d), k, 100.0 * rne->relative_l2, 100.0 * rne->mean_signed_relative,
          100.0 * rz->relative_l2, 100.0 * rz->mean_signed_relative));
    }
}

void add_promotion_findings(const Sweep& sweep, std::vector<std::string>& findings) {
  const std::vector<std::int64_t> ks = sweep.context().parameters.integers("k");
  if (ks.empty()) return;
  const std::int64_t k = *std::max_element(ks.begin(), ks.end());
  for (const Distribution d : sweep.distributions()) {
    const Curve hopper{OperandFormat::e4m3, d, std::string(kHopper), 0};
    Curve promoted = hopper;
    promoted.interval = kDeepSeekInterval;
    const Comparison* without = sweep.find(hopper, k);
    const Comparison* with = sweep.find(promoted, k);
    if (without == nullptr || with == nullptr) continue;
    findings.push_back(fmt::format(
        "Promotion every 128 lowers the relative L2 error of {} at K = {}, {} operands, from "
        "{:.3g} % to {:.3g} % ({:.0f} times); the bias goes from {:+.2g} % to {:+.2g} %.",
        kHopper, k, to_string(d), 100.0 * without->relative_l2, 100.0 * with->relative_l2,
        without->relative_l2 / with->relative_l2, 100.0 * without->mean_signed_relative,
        100.0 * with->mean_signed_relative));
  }
}

}  // namespace

Results accumulator_drift(const RunContext& context) {
  Sweep sweep(context);
  sweep.run();
  Results results;
  add_slope_findings(sweep, results.findings);
  add_nearest_findings(sweep, results.findings);
  add_promotion_findings(sweep, results.findings);
  results.tables = {error_table(sweep), slope_table(sweep), split_table(sweep)};
  context.progress(0.9);
  results.tables.push_back(published_table(context, results.findings));
  for (const Distribution d : sweep.distributions())
    results.plots.push_back(plot_against_k(sweep, d));
  results.plots.push_back(plot_rounding_law(sweep));
  results.plots.push_back(plot_against_interval(sweep));

  const Parameters& p = context.parameters;
  for (const auto& [d, k] : {std::pair{Distribution::uniform, p.integer("running_sum_k")},
                             std::pair{Distribution::ones, std::int64_t{32768}}}) {
    RunningSumResult sums = record_running_sum(context, d, k, p.integer("running_sum_step"));
    results.tables.push_back(std::move(sums.table));
    results.plots.push_back(std::move(sums.plot));
  }
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments
