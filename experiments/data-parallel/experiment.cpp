#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "data-parallel/workers.hpp"
#include "fp8-allreduce/parts.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/train/systems.hpp"
#include "train/curves.hpp"
#include "train/settings.hpp"

namespace fp8lab::experiments {
namespace {

struct Point {
  train::ReductionOptions options;
  ParallelRun run;

  [[nodiscard]] std::string name() const {
    if (options.scaling == GradientScaling::none) return std::string(options.wire.name);
    return fmt::format("{} {}", options.wire.name, to_string(options.scaling));
  }
};

struct Study {
  StudySettings settings;
  Variant variant;
  bool whole_tensor_zero = false;
  std::vector<Point> points;  ///< for each number of workers, FP32 wires first

  /// FP32 wires between as many workers.
  [[nodiscard]] const ParallelRun& reference(const Point& point) const {
    return std::find_if(points.begin(), points.end(),
                        [&](const Point& candidate) {
                          return candidate.options.ranks == point.options.ranks;
                        })
        ->run;
  }
  [[nodiscard]] double gap(const Point& point) const {
    return tail_loss(settings, point.run.losses) - tail_loss(settings, reference(point).losses);
  }
};

Study read_study(const Parameters& p) {
  Study study;
  study.settings = read_settings(p);
  study.settings.samples = static_cast<std::int64_t>(positive(p, "samples"));
  const std::string variant = p.text("variant");
  if (const train::TrainingSystem* system = train::training_system(variant)) {
    study.variant = {"system", variant, system->blocks, 1.0, false};
    study.settings.optimizer = system->optimizer;
    study.whole_tensor_zero = system->whole_tensor_zero;
  } else {
    study.variant = find_variant(variant);
  }
  const Topology topology = find_topology(p.text("topology"));
  std::vector<GradientScaling> scalings;
  for (const std::string& name : p.texts("scalings"))
    scalings.push_back(find_gradient_scaling(name, "scalings"));
  const std::vector<std::string> wires = p.texts("wires");
  require(!wires.empty() && wires.front() == "f32", "wires", "f32, the reference, first",
          wires.empty() ? "none" : "'" + wires.front() + "'");
  for (const int workers : rank_counts(p, "workers"))
    for (const std::string& name : wires) {
      const WireFormat& wire = find_wire_format(name);
      if (wire.bytes > 1) {
        study.points.push_back({{workers, topology, wire, GradientScaling::none}, {}});
        continue;
      }
      for (const GradientScaling scaling : scalings)
        study.points.push_back({{workers, topology, wire, scaling}, {}});
    }
  return study;
}

std::string setup(const Study& study) {
  const StudySettings& s = study.settings;
  return fmt::format("{} parameters, {}, {} tokens a worker and step, {} steps, {}",
                     study.points.front().run.parameters, study.variant.name,
                     s.sequences * s.shape.length, s.schedule.steps,
                     to_string(study.points.front().options.topology));
}

Table run_table(const Study& study) {
  Table table("runs", fmt::format("Wires of the gradient all-reduce ({})", setup(study)),
              {{"workers", "1", "ranks, each with its own model and batches"},
               {"wire", "", "format between ranks"},
               {"scaling", "", "of gradients before the sum"},
               {"verdict", "", "follows, stalls or diverges, against FP32 wires"},
               {"gap", "nats", "tail loss above that of FP32 wires"},
               {"loss", "nats", "mean over the workers and the last steps"},
               {"sqnr", "dB", "mean gradient against FP32 wires', same step"},
               {"underflow", "%", "elements of the mean gradient that became zero"},
               {"saturated", "%", "elements of the sums at max finite"},
               {"smallest_mu", "1", "auto: of all tensors at the end"},
               {"traffic", "kB", "sent by the busiest rank a step, gradients"}});
  for (const Point& point : study.points) {
    const ParallelRun& run = point.run;
    table.add_row(
        {static_cast<std::int64_t>(point.options.ranks), std::string(point.options.wire.name),
         std::string(to_string(point.options.scaling)),
         to_string(judge(study.settings, run.losses, study.reference(point).losses)),
         study.gap(point), tail_loss(study.settings, run.losses), run.sqnr_db,
         run.underflow_percent, run.saturated_percent, run.smallest_mu, 1e-3 * run.bytes_per_step});
  }
  return table;
}

Table curve_table(const Study& study) {
  Table table("curves", "Loss over the steps, means of stretches",
              {{"workers", "1", "as in runs"},
               {"run", "", "wire and scaling"},
               {"step", "steps", "middle of the stretch"},
               {"loss", "nats", "mean over the workers"}});
  for (const Point& point : study.points) {
    const Series series = loss_curve(point.name(), point.run.losses);
    for (std::size_t i = 0; i < series.x.size(); ++i)
      table.add_row(
          {static_cast<std::int64_t>(point.options.ranks), point.name(), series.x[i], series.y[i]});
  }
  return table;
}

Plot curve_plot(const Study& study) {
  const int most = study.points.back().options.ranks;
  Plot plot{"loss",
            fmt::format("Loss with {} workers ({})", most, setup(study)),
            {"step"},
            {"loss, nats"},
            {}};
  for (const Point& point : study.points)
    if (point.options.ranks == most)
      plot.series.push_back(loss_curve(point.name(), point.run.losses));
  plot.series.front().style = Series::Style::dashed;
  return plot;
}

/// Curves of losses lie on each other; their gaps do not.
Plot gap_plot(const Study& study) {
  const int most = study.points.back().options.ranks;
  Plot plot{"gap",
            fmt::format("Loss above FP32 wires with {} workers ({})", most, setup(study)),
            {"step"},
            {"gap, nats"},
            {}};
  for (const Point& point : study.points) {
    const ParallelRun& reference = study.reference(point);
    if (point.options.ranks == most && &point.run != &reference)
      plot.series.push_back(gap_band(point.name(), {point.run.losses}, {reference.losses}));
  }
  return plot;
}

std::vector<std::string> findings_of(const Study& study) {
  std::vector<std::string> findings;
  for (const Point& point : study.points) {
    if (&point.run == &study.reference(point)) continue;
    findings.push_back(fmt::format(
        "{} workers, {}: gap to FP32 wires {:+.4f} nats, mean gradient at {:.1f} dB, {:.3g} % "
        "underflow, {:.3g} % saturated, {:.3g} times the traffic ({}).",
        point.options.ranks, point.name(), study.gap(point), point.run.sqnr_db,
        point.run.underflow_percent, point.run.saturated_percent,
        point.run.bytes_per_step / study.reference(point).bytes_per_step, setup(study)));
  }
  return findings;
}

}  // namespace

Results data_parallel(const RunContext& context) {
  Study study = read_study(context.parameters);
  study.settings.backend = context.backend;
  Fabric& fabric = context.fabric == nullptr ? in_process_fabric() : *context.fabric;
  RunContext points = context;
  if (!fabric.concurrent()) points.threads = 1;
  parallel_points(points, study.points.size(), [&](std::size_t i) {
    study.points[i].run =
        train_parallel(fabric, study.settings, study.variant,
                       {study.points[i].options, study.whole_tensor_zero}, context.seed);
  });
  Results results;
  results.tables = {run_table(study), curve_table(study)};
  if (Plot gaps = gap_plot(study); !gaps.series.empty()) results.plots.push_back(std::move(gaps));
  results.plots.push_back(curve_plot(study));
  results.findings = findings_of(study);
  return results;
}

}  // namespace fp8lab::experiments
