#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "adam-states/seed_adam.hpp"
#include "adam-states/trajectory.hpp"
#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"
#include "training/optim/presets.hpp"

namespace fp8lab::experiments {
namespace {

struct Setup {
  std::vector<const OptimizerPreset*> presets;
  std::vector<double> decades;
  double curve_decades = 0.0;
  std::vector<double> betas;
  Problem problem;
  std::int64_t steps = 0;
  double lr = 0.0;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  bool quantize_gradients = false;
  std::int64_t stagnation_steps = 0;
  std::size_t stagnation_elements = 0;
  double listing_weights = 0.0;
  double listing_decades = 0.0;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("presets", &Setup::presets, find_optimizer_preset),
                      field("decades", &Setup::decades),
                      field("curve_decades", &Setup::curve_decades),
                      field("betas", &Setup::betas),
                      group(&Setup::problem, field("elements", &Problem::elements),
                            field("noise", &Problem::noise)),
                      field("steps", &Setup::steps),
                      field("lr", &Setup::lr),
                      field("beta1", &Setup::beta1),
                      field("beta2", &Setup::beta2),
                      field("quantize_gradients", &Setup::quantize_gradients),
                      field("stagnation_steps", &Setup::stagnation_steps),
                      field("stagnation_elements", &Setup::stagnation_elements),
                      field("listing_weights", &Setup::listing_weights),
                      field("listing_decades", &Setup::listing_decades),
                      field("repeats", &Setup::repeats)};
  }

  [[nodiscard]] AdamWOptions options(const OptimizerPreset& preset) const {
    AdamWOptions o = preset.options;
    o.beta1 = beta1;
    o.beta2 = beta2;
    o.weight_decay = 0.0;
    o.threads = 1;
    if (!quantize_gradients) o.gradient = {};
    return o;
  }
};

struct Run {
  const OptimizerPreset* preset = nullptr;
  double decades = 0.0;
  Trajectory trajectory;

  /// Over the last tenth, where the noise of single steps averages out.
  [[nodiscard]] double final_loss() const {
    const std::vector<double>& loss = trajectory.loss;
    const std::size_t tail = std::max<std::size_t>(1, loss.size() / 10);
    double sum = 0.0;
    for (std::size_t i = loss.size() - tail; i < loss.size(); ++i) sum += loss[i];
    return sum / static_cast<double>(tail);
  }
};

std::vector<Run> measure_runs(const RunContext& context, const Setup& s) {
  std::vector<Run> runs;
  std::vector<double> decades = s.decades;
  if (std::ranges::find(decades, s.curve_decades) == decades.end())
    decades.push_back(s.curve_decades);
  for (const double d : decades)
    for (const OptimizerPreset* preset : s.presets) runs.push_back({preset, d, {}});
  parallel_points(
      context, runs.size(),
      [&](std::size_t i) {
        Problem problem = s.problem;
        problem.decades = runs[i].decades;
        const Quadratic quadratic(context.random("adam-states/noise"), problem);
        runs[i].trajectory = run_trajectory(quadratic, s.options(*runs[i].preset), s.lr, s.steps);
      },
      0.0, 0.7);
  return runs;
}

Table run_table(const std::vector<Run>& runs) {
  return row_table<Run>(
      "runs", "Quadratics of several decades of curvature: mean x^2, from 1 at the start",
      {{"preset", "", "states", [](const Run& run) { return run.preset->name; }},
       {"decades", "1", "of curvature", &Run::decades},
       {"loss", "1", "mean x^2 over the last tenth of the steps", &Run::final_loss},
       {"largest_loss", "1", "over all steps",
        [](const Run& run) { return *std::ranges::max_element(run.trajectory.loss); }},
       {"largest_update", "1", "in units of the learning rate, after 10 steps",
        [](const Run& run) { return run.trajectory.largest_update; }},
       {"zero_v", "%", "elements whose stored second moment is 0, at the end",
        [](const Run& run) { return run.trajectory.zero_v_percent; }}},
      runs);
}

Table memory_table(const Setup& s) {
  Table table("memory", "Bytes per parameter, from the buffers of one step",
              {{"preset", "", "states"},
               {"master", "B", "master weight"},
               {"gradient", "B", "storage of the preset"},
               {"m", "B", "first moment"},
               {"v", "B", "second moment"},
               {"scales", "B", "of all states"},
               {"total", "B", "of these"},
               {"used_by", "", "systems"}});
  const std::vector<float> values(s.problem.elements, 1.0F);
  const std::vector<Parameter> parameters{
      {"x", {static_cast<std::int64_t>(values.size())}, values}};
  const std::vector<std::span<const float>> gradients{values};
  for (const OptimizerPreset& preset : optimizer_presets()) {
    AdamWOptions one_thread = preset.options;
    one_thread.threads = 1;
    AdamW optimizer(one_thread, parameters);
    optimizer.step(gradients, 0.0);
    const OptimizerMemory m = optimizer.memory();
    const auto each = [&](std::size_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(m.parameters);
    };
    table.add_row({std::string(preset.name), each(m.master), each(m.gradient), each(m.m), each(m.v),
                   each(m.scales), m.bytes_per_parameter(), std::string(preset.used_by)});
  }
  return table;
}

struct Stagnation {
  std::string_view name;
  StateFormat format;
};
constexpr Stagnation kStagnation[] = {
    {"E4M3, tensor scale", {FormatId::e4m3fn, StateScaling::tensor}},
    {"E5M2, tensor scale", {FormatId::e5m2, StateScaling::tensor}},
    {"E4M3, expanded", {FormatId::e4m3fn, StateScaling::expanded}},
    {"BF16", {FormatId::bf16}},
    {"FP16, tensor scale", {FormatId::f16, StateScaling::tensor}}};

struct StagnationPoint {
  const Stagnation* format = nullptr;
  double beta2 = 0.0;
  double ratio = 0.0;
};

std::vector<StagnationPoint> measure_stagnation(const RunContext& context, const Setup& s) {
  std::vector<StagnationPoint> points;
  for (const Stagnation& format : kStagnation)
    for (const double beta2 : s.betas) points.push_back({&format, beta2, 0.0});
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        AdamWOptions options;
        options.threads = 1;
        options.beta2 = static_cast<float>(points[i].beta2);
        options.v = points[i].format->format;
        points[i].ratio = v_ratio(context.random("adam-states/v"), options, s.stagnation_elements,
                                  s.stagnation_steps);
      },
      0.7, 0.95);
  return points;
}

Table stagnation_table(const std::vector<StagnationPoint>& points) {
  return row_table<StagnationPoint>(
      "stagnation", "Stored second moment over FP32's, gradients normal(0, 1)",
      {{"format", "", "of v", [](const StagnationPoint& point) { return point.format->name; }},
       {"beta2", "1", "decay of v", &StagnationPoint::beta2},
       {"ratio", "1", "mean of stored v over mean of FP32's v", &StagnationPoint::ratio}},
      points);
}

struct ListingRun {
  SeedAdamVariant variant;
  std::int64_t steps = 0;  ///< that ran
  double loss = 0.0;
  double lost_percent = 0.0;
  std::string error;
};

/// Everything that a repeat measures.
struct Draw {
  std::vector<Run> runs;
  std::vector<StagnationPoint> stagnation;
  std::vector<ListingRun> listings;
};

std::vector<double> ratios(const std::vector<Draw>& draws, std::size_t point) {
  return each_repeat(draws, [&](const Draw& d) { return d.stagnation[point].ratio; });
}

std::vector<double> of_runs(const std::vector<Draw>& draws, std::size_t run,
                            double (*value)(const Run&)) {
  return each_repeat(draws, [&](const Draw& d) { return value(d.runs[run]); });
}

std::vector<double> of_listings(const std::vector<Draw>& draws, std::size_t listing,
                                double ListingRun::*figure) {
  return each_repeat(draws, [&](const Draw& d) { return d.listings[listing].*figure; });
}

Plot stagnation_plot(const std::vector<Draw>& draws) {
  const std::vector<StagnationPoint>& points = draws.front().stagnation;
  Plot plot{"stagnation",
            "v with few bits stops changing: stored v over FP32's (gradients normal(0, 1))",
            {"1 - beta2", true},
            {"stored v / FP32 v", true},
            {}};
  for (const Stagnation& format : kStagnation) {
    Series series{std::string(format.name), {}, {}};
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].format != &format) continue;
      const Spread ratio = spread_of(ratios(draws, i));
      series.x.push_back(1.0 - points[i].beta2);
      series.y.push_back(ratio.mean);
      series.low.push_back(ratio.min);
      series.high.push_back(ratio.max);
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot decades_plot(const Setup& s, const std::vector<Draw>& draws, const char* name,
                  const char* title, const Axis& y, double (*value)(const Run&)) {
  const std::vector<Run>& runs = draws.front().runs;
  Plot plot{name, title, {"decades of curvature in the tensor"}, y, {}};
  for (const OptimizerPreset* preset : s.presets) {
    Series series{std::string(preset->name), {}, {}};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const Run& run = runs[i];
      if (run.preset != preset) continue;
      if (std::find(s.decades.begin(), s.decades.end(), run.decades) == s.decades.end()) continue;
      const Spread spread = spread_of(of_runs(draws, i, value));
      series.x.push_back(run.decades);
      series.y.push_back(spread.mean);
      series.low.push_back(spread.min);
      series.high.push_back(spread.max);
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot curve_plot(const std::vector<Run>& runs, double decades) {
  Plot plot{"loss",
            fmt::format("Mean x^2 over the steps, {:g} decades of curvature", decades),
            {"step"},
            {"mean x^2", true},
            {}};
  for (const Run& run : runs) {
    if (run.decades != decades) continue;
    Series series{std::string(run.preset->name), {}, {}, Series::Style::lines};
    const std::size_t stride = std::max<std::size_t>(1, run.trajectory.loss.size() / 500);
    for (std::size_t i = 0; i < run.trajectory.loss.size(); i += stride) {
      series.x.push_back(static_cast<double>(i + 1));
      series.y.push_back(run.trajectory.loss[i]);
    }
    plot.series.push_back(series);
  }
  return plot;
}

std::vector<ListingRun> run_listings(const RunContext& context, const Setup& s) {
  Problem problem = s.problem;
  problem.decades = s.listing_decades;
  problem.start = s.listing_weights;
  const Quadratic quadratic(context.random("adam-states/noise"), problem);
  std::vector<ListingRun> runs;
  for (const SeedAdamVariant variant :
       {SeedAdamVariant::as_written, SeedAdamVariant::codes_as_values,
        SeedAdamVariant::scale_read_back}) {
    SeedAdam optimizer(variant, quadratic.start(), static_cast<float>(s.lr));
    ListingRun run{variant, 0, 0.0, 0.0, ""};
    std::vector<float> g;
    try {
      for (; run.steps < s.steps; ++run.steps) {
        quadratic.gradient(run.steps, optimizer.weights(), g);
        optimizer.step(g);
      }
    } catch (const Error& error) {
      run.error = error.what();
    }
    run.loss = mean_square(optimizer.weights());
    run.lost_percent = 100.0 * optimizer.lost_share();
    runs.push_back(run);
  }
  return runs;
}

Table listing_table(const std::vector<ListingRun>& runs) {
  return row_table<ListingRun>(
      "listing", "The FP8Adam of the FP8-LM summary on a quadratic",
      {{"variant", "", "how m_scale is treated", &ListingRun::variant},
       {"steps", "1", "that ran", &ListingRun::steps},
       {"loss", "1", "mean x^2 at the end", &ListingRun::loss},
       {"lost", "%", "updates that did not change an FP16 weight", &ListingRun::lost_percent},
       {"error", "", "what ended it", &ListingRun::error}},
      runs);
}

double final_loss(const Run& run) { return run.final_loss(); }
double largest_update(const Run& run) { return run.trajectory.largest_update; }
double zero_v(const Run& run) { return run.trajectory.zero_v_percent; }

/// Under which states updates stay near the learning rate, and what happens where they do not.
std::string answer_of(const Setup& s, const std::vector<Draw>& draws) {
  constexpr double kNear = 10.0;  // learning rates
  const double most = *std::max_element(s.decades.begin(), s.decades.end());
  std::vector<std::string> near;
  std::vector<std::string> far;
  for (std::size_t i = 0; i < draws.front().runs.size(); ++i) {
    const Run& run = draws.front().runs[i];
    if (run.decades != most) continue;
    const auto of_draws = of_runs(draws, i, largest_update);
    if (*std::ranges::max_element(of_draws) <= kNear)
      near.emplace_back(run.preset->name);
    else
      far.push_back(fmt::format("{} with {} ({} of its second moments are stored as 0)",
                                log_interval_text(of_draws), run.preset->name,
                                share_text(of_runs(draws, i, zero_v), 1.0,
                                           100.0 * share_resolution(s.problem.elements))));
  }
  return fmt::format(
      "With {:g} decades of curvature the largest update is at most {:g} learning rates under {}{} "
      "({} steps, {} draws).",
      most, kNear, near.empty() ? "no states" : in_words(near),
      far.empty() ? "" : fmt::format("; it is {}", in_words(far)), s.steps, draws.size());
}

void add_findings(const Setup& s, const std::vector<Draw>& draws, Results& results) {
  results.findings.push_back(answer_of(s, draws));
  const std::string meaning =
      fmt::format("{}; {}; draws: {}", kIntervalMeaning, kLogIntervalMeaning, draws.size());
  const double most = *std::max_element(s.decades.begin(), s.decades.end());
  const Draw& first = draws.front();
  for (std::size_t i = 0; i < first.runs.size(); ++i)
    if (first.runs[i].decades == most)
      results.findings.push_back(fmt::format(
          "{}, {:g} decades of curvature, {} steps: mean x^2 ends at {}, largest update {} "
          "learning rates, {} of the second moments stored as 0 ({}).",
          first.runs[i].preset->name, most, s.steps,
          log_interval_text(of_runs(draws, i, final_loss)),
          log_interval_text(of_runs(draws, i, largest_update)),
          share_text(of_runs(draws, i, zero_v), 1.0, 100.0 * share_resolution(s.problem.elements)),
          meaning));
  for (std::size_t i = 0; i < first.stagnation.size(); ++i)
    if (first.stagnation[i].beta2 == s.betas.back())
      results.findings.push_back(
          fmt::format("v in {}, beta2 = {:g}: the stored mean is {} of FP32's ({}; draws: {}).",
                      first.stagnation[i].format->name, s.betas.back(),
                      interval_text(ratios(draws, i)), kIntervalMeaning, draws.size()));
  for (std::size_t i = 0; i < first.listings.size(); ++i)
    results.findings.push_back(fmt::format(
        "The FP8-LM summary's FP8Adam, {}: {} of {} steps, mean x^2 {}, {} of the updates lost "
        "in FP16 weights ({}).",
        to_string(first.listings[i].variant), first.listings[i].steps, s.steps,
        log_interval_text(of_listings(draws, i, &ListingRun::loss)),
        share_text(of_listings(draws, i, &ListingRun::lost_percent), 1.0,
                   100.0 * share_resolution(s.problem.elements)),
        meaning));
}

}  // namespace

Results adam_states(const RunContext& context) {
  const auto setup = read_parameters<Setup>(context.parameters);
  const auto draws = measure_repeats(context, setup.repeats, [&](const RunContext& one) {
    return Draw{measure_runs(one, setup), measure_stagnation(one, setup), run_listings(one, setup)};
  });
  std::vector<Table> runs, stagnation, listings;
  for (const Draw& draw : draws) {
    runs.push_back(run_table(draw.runs));
    stagnation.push_back(stagnation_table(draw.stagnation));
    listings.push_back(listing_table(draw.listings));
  }
  Results results;
  const auto add = [&](const std::vector<Table>& tables,
                       const std::vector<std::string_view>& measured) {
    for (Table& table : join_repeats(tables, measured)) results.tables.push_back(std::move(table));
  };
  add(runs, {"loss", "largest_loss", "largest_update", "zero_v"});
  add(stagnation, {"ratio"});
  results.tables.push_back(memory_table(setup));
  add(listings, {"loss", "lost"});
  results.plots = {curve_plot(draws.front().runs, setup.curve_decades),
                   decades_plot(setup, draws, "final_loss", "Mean x^2 at the end",
                                {"mean x^2", true}, final_loss),
                   decades_plot(setup, draws, "zero_v", "Second moments stored as 0",
                                {"elements with v = 0 (%)"}, zero_v),
                   stagnation_plot(draws)};
  add_findings(setup, draws, results);
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments
