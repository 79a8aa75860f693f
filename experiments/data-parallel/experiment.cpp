#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parallel.hpp"
#include "data-parallel/workers.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/row_table.hpp"
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

struct Settings {
  StudySettings study;
  std::string variant;
  Topology topology = Topology::ring;
  std::vector<GradientScaling> scalings;
  std::vector<std::string> wires;
  std::vector<int> workers;

  static constexpr auto fields() {
    return std::tuple{
        group(&Settings::study, study_fields()),
        group(&Settings::study, field("samples", &StudySettings::samples)),
        field("variant", &Settings::variant),
        field("topology", &Settings::topology, find_topology),
        field("scalings", &Settings::scalings,
              [](const std::string& name) { return find_gradient_scaling(name, "scalings"); }),
        field("wires", &Settings::wires),
        field("workers", &Settings::workers)};
  }
};

Study read_study(const Parameters& parameters) {
  const auto p = read_parameters<Settings>(parameters);
  Study study;
  study.settings = p.study;
  if (const train::TrainingSystem* system = train::training_system(p.variant)) {
    study.variant = {"system", p.variant, system->blocks, 1.0, false};
    study.settings.optimizer = system->optimizer;
    study.whole_tensor_zero = system->whole_tensor_zero;
  } else {
    study.variant = find_variant(p.variant);
  }
  require(p.wires.front() == "f32", "wires", "f32, the reference, first",
          "'" + p.wires.front() + "'");
  for (const int workers : p.workers)
    for (const std::string& name : p.wires) {
      const WireFormat& wire = find_wire_format(name);
      if (wire.bytes > 1) {
        study.points.push_back({{workers, p.topology, wire, GradientScaling::none}, {}});
        continue;
      }
      for (const GradientScaling scaling : p.scalings)
        study.points.push_back({{workers, p.topology, wire, scaling}, {}});
    }
  return study;
}

std::string setup(const Study& study) {
  const StudySettings& s = study.settings;
  return fmt::format("{} parameters, {}, {} tokens per worker and step, {} steps, {}",
                     study.points.front().run.parameters, study.variant.name,
                     s.sequences * s.shape.length, s.schedule.steps,
                     to_string(study.points.front().options.topology));
}

Table run_table(const Study& study) {
  return row_table<Point>(
      "runs", fmt::format("Wires of the gradient all-reduce ({})", setup(study)),
      {{"workers", "1", "ranks, each with its own model and batches",
        [](const Point& p) { return p.options.ranks; }},
       {"wire", "", "format between ranks", [](const Point& p) { return p.options.wire.name; }},
       {"scaling", "", "of gradients before the sum",
        [](const Point& p) { return p.options.scaling; }},
       {"verdict", "", "follows, stalls or diverges, against FP32 wires",
        [&](const Point& p) {
          return judge(study.settings, p.run.losses, study.reference(p).losses);
        }},
       {"gap", "nats", "tail loss above that of FP32 wires",
        [&](const Point& p) { return study.gap(p); }},
       {"loss", "nats", "mean over the workers and the last steps",
        [&](const Point& p) { return tail_loss(study.settings, p.run.losses); }},
       {"sqnr", "dB", "mean gradient against FP32 wires', same step",
        [](const Point& p) { return p.run.sqnr_db; }},
       {"underflow", "%", "elements of the mean gradient that became zero",
        [](const Point& p) { return p.run.underflow_percent; }},
       {"saturated", "%", "elements of the sums at max finite",
        [](const Point& p) { return p.run.saturated_percent; }},
       {"smallest_mu", "1", "auto: of all tensors at the end",
        [](const Point& p) { return p.run.smallest_mu; }},
       {"traffic", "kB", "sent by the busiest rank per step, gradients",
        [](const Point& p) { return 1e-3 * p.run.bytes_per_step; }}},
      study.points);
}

Table curve_table(const Study& study) {
  Table table("curves", "Loss over the steps, means over intervals",
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
