#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "adam-states/seed_adam.hpp"
#include "adam-states/trajectory.hpp"
#include "common/parallel.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/parameter_struct.hpp"
#include "fp8lab/experiment/row_table.hpp"
#include "fp8lab/optim/presets.hpp"

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
                      field("listing_decades", &Setup::listing_decades)};
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

Plot stagnation_plot(const std::vector<StagnationPoint>& points) {
  Plot plot{"stagnation",
            "v with few bits stops changing: stored v over FP32's (gradients normal(0, 1))",
            {"1 - beta2", true},
            {"stored v / FP32 v", true},
            {}};
  for (const Stagnation& format : kStagnation) {
    Series series{std::string(format.name), {}, {}};
    for (const StagnationPoint& point : points) {
      if (point.format != &format) continue;
      series.x.push_back(1.0 - point.beta2);
      series.y.push_back(point.ratio);
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot decades_plot(const Setup& s, const std::vector<Run>& runs, const char* name, const char* title,
                  const Axis& y, double (*value)(const Run&)) {
  Plot plot{name, title, {"decades of curvature in the tensor"}, y, {}};
  for (const OptimizerPreset* preset : s.presets) {
    Series series{std::string(preset->name), {}, {}};
    for (const Run& run : runs) {
      if (run.preset != preset) continue;
      if (std::find(s.decades.begin(), s.decades.end(), run.decades) == s.decades.end()) continue;
      series.x.push_back(run.decades);
      series.y.push_back(value(run));
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

struct ListingRun {
  SeedAdamVariant variant;
  std::int64_t steps = 0;  ///< that ran
  double loss = 0.0;
  double lost_percent = 0.0;
  std::string error;
};

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

void add_findings(const Setup& s, const std::vector<Run>& runs,
                  const std::vector<StagnationPoint>& points,
                  const std::vector<ListingRun>& listings, Results& results) {
  const double most = *std::max_element(s.decades.begin(), s.decades.end());
  for (const Run& run : runs)
    if (run.decades == most)
      results.findings.push_back(fmt::format(
          "{}, {:g} decades of curvature, {} steps: mean x^2 ends at {:.3g}, largest update {:.3g} "
          "learning rates, {:.3g} % of the second moments stored as 0.",
          run.preset->name, run.decades, s.steps, run.final_loss(), run.trajectory.largest_update,
          run.trajectory.zero_v_percent));
  for (const StagnationPoint& point : points)
    if (point.beta2 == s.betas.back())
      results.findings.push_back(
          fmt::format("v in {}, beta2 = {:g}: the stored mean is {:.3g} of FP32's.",
                      point.format->name, point.beta2, point.ratio));
  for (const ListingRun& run : listings)
    results.findings.push_back(
        fmt::format("The FP8-LM summary's FP8Adam, {}: {} of {} steps, mean x^2 {:.3g}, {:.3g} % "
                    "of the updates lost in "
                    "FP16 weights.",
                    to_string(run.variant), run.steps, s.steps, run.loss, run.lost_percent));
}

}  // namespace

Results adam_states(const RunContext& context) {
  const auto setup = read_parameters<Setup>(context.parameters);
  const std::vector<Run> runs = measure_runs(context, setup);
  const std::vector<StagnationPoint> points = measure_stagnation(context, setup);
  const std::vector<ListingRun> listings = run_listings(context, setup);
  Results results;
  results.tables = {run_table(runs), stagnation_table(points), memory_table(setup),
                    listing_table(listings)};
  results.plots = {
      curve_plot(runs, setup.curve_decades),
      decades_plot(setup, runs, "final_loss", "Mean x^2 at the end", {"mean x^2", true},
                   [](const Run& run) { return run.final_loss(); }),
      decades_plot(setup, runs, "zero_v", "Second moments stored as 0", {"elements with v = 0 (%)"},
                   [](const Run& run) { return run.trajectory.zero_v_percent; }),
      stagnation_plot(points)};
  add_findings(setup, runs, points, listings, results);
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments
