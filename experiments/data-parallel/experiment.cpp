#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "data-parallel/workers.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/row_table.hpp"
#include "train/curves.hpp"
#include "train/settings.hpp"
#include "training/train/systems.hpp"

namespace fp8lab::experiments {
namespace {

struct Point {
  train::ReductionOptions options;
  std::vector<ParallelRun> runs;  ///< by seed

  [[nodiscard]] std::string name() const {
    if (options.scaling == GradientScaling::none) return std::string(options.wire.name);
    return fmt::format("{} {}", options.wire.name, to_string(options.scaling));
  }
  [[nodiscard]] std::vector<std::vector<double>> losses() const {
    std::vector<std::vector<double>> all;
    for (const ParallelRun& run : runs) all.push_back(run.losses);
    return all;
  }
};

struct Study {
  StudySettings settings;
  Variant variant;
  bool whole_tensor_zero = false;
  std::size_t seeds = 0;
  std::vector<Point> points;  ///< for each number of workers, FP32 wires first

  /// FP32 wires between as many workers.
  [[nodiscard]] const Point& reference(const Point& point) const {
    return *std::find_if(points.begin(), points.end(), [&](const Point& candidate) {
      return candidate.options.ranks == point.options.ranks;
    });
  }
  [[nodiscard]] double gap(const Point& point, std::size_t seed) const {
    return tail_loss(settings, point.runs[seed].losses) -
           tail_loss(settings, reference(point).runs[seed].losses);
  }
  [[nodiscard]] Outcome outcome(const Point& point, std::size_t seed) const {
    return judge(settings, point.runs[seed].losses, reference(point).runs[seed].losses);
  }
  [[nodiscard]] Outcome worst_outcome(const Point& point) const {
    OutcomeCounts counts{};
    for (std::size_t s = 0; s < seeds; ++s) ++counts[static_cast<std::size_t>(outcome(point, s))];
    return worst(counts);
  }
};

struct Settings {
  StudySettings study;
  std::string variant;
  Topology topology = Topology::ring;
  std::vector<GradientScaling> scalings;
  std::vector<std::string> wires;
  std::vector<int> workers;
  std::size_t seeds = 0;

  static constexpr auto fields() {
    return std::tuple{
        group(&Settings::study, study_fields()),
        group(&Settings::study, field("samples", &StudySettings::samples)),
        field("variant", &Settings::variant),
        field("topology", &Settings::topology, find_topology),
        field("scalings", &Settings::scalings,
              [](const std::string& name) { return find_gradient_scaling(name, "scalings"); }),
        field("wires", &Settings::wires),
        field("workers", &Settings::workers),
        field("seeds", &Settings::seeds)};
  }
};

Study read_study(const Parameters& parameters) {
  const auto p = read_parameters<Settings>(parameters);
  Study study;
  study.settings = p.study;
  study.seeds = p.seeds;
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
                     study.points.front().runs.front().parameters, study.variant.name,
                     s.sequences * s.shape.length, s.schedule.steps,
                     to_string(study.points.front().options.topology));
}

enum class Verdict : std::uint8_t { worst_seed, this_seed };

/// The figures of one seed.
Table run_table(const Study& study, std::size_t seed, Verdict verdict) {
  const bool worst = verdict == Verdict::worst_seed;
  return row_table<Point>(
      "runs", fmt::format("Wires of the gradient all-reduce ({})", setup(study)),
      {{"workers", "1", "ranks, each with its own model and batches",
        [](const Point& p) { return p.options.ranks; }},
       {"wire", "", "format between ranks", [](const Point& p) { return p.options.wire.name; }},
       {"scaling", "", "of gradients before the sum",
        [](const Point& p) { return p.options.scaling; }},
       {"verdict", "",
        fmt::format("of {} seed, against FP32 wires: follows, stalls or diverges",
                    worst ? "the worst" : "this"),
        [&](const Point& p) { return worst ? study.worst_outcome(p) : study.outcome(p, seed); }},
       {"gap", "nats", "tail loss above that of FP32 wires",
        [&](const Point& p) { return study.gap(p, seed); }},
       {"loss", "nats", "mean over the workers and the last steps",
        [&](const Point& p) { return tail_loss(study.settings, p.runs[seed].losses); }},
       {"sqnr", "dB", "mean gradient against FP32 wires', same step",
        [&](const Point& p) { return p.runs[seed].sqnr_db; }},
       {"underflow", "%", "elements of the mean gradient that became zero",
        [&](const Point& p) { return p.runs[seed].underflow_percent; }},
       {"saturated", "%", "elements of the sums at max finite",
        [&](const Point& p) { return p.runs[seed].saturated_percent; }},
       {"smallest_mu", "1", "auto: of all tensors at the end",
        [&](const Point& p) { return p.runs[seed].smallest_mu; }},
       {"traffic", "kB", "sent by the busiest rank per step, gradients",
        [&](const Point& p) { return 1e-3 * p.runs[seed].bytes_per_step; }}},
      study.points);
}

Table curve_table(const Study& study) {
  Table table("curves", "Loss over the steps, mean over the seeds, means over intervals",
              {{"workers", "1", "as in runs"},
               {"run", "", "wire and scaling"},
               {"step", "steps", "middle of the stretch"},
               {"loss", "nats", "mean over workers and seeds"}});
  for (const Point& point : study.points) {
    const Series series = loss_band(point.name(), point.losses());
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
    if (point.options.ranks == most) plot.series.push_back(loss_band(point.name(), point.losses()));
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
    const Point& reference = study.reference(point);
    if (point.options.ranks == most && &point != &reference)
      plot.series.push_back(gap_band(point.name(), point.losses(), reference.losses()));
  }
  return plot;
}

auto figure(double ParallelRun::*member) {
  return [member](const ParallelRun& run) { return run.*member; };
}

/// Of the largest number of workers.
std::string answer_of(const Study& study) {
  const int most = study.points.back().options.ranks;
  NamedOutcomes outcomes;
  double traffic = 0.0;
  for (const Point& point : study.points) {
    const Point& reference = study.reference(point);
    if (point.options.ranks != most || &point == &reference) continue;
    outcomes.add(point.name(), study.worst_outcome(point));
    traffic = std::max(traffic,
                       point.runs.front().bytes_per_step / reference.runs.front().bytes_per_step);
  }
  return fmt::format(
      "Between {} workers {}, by the worst of their seeds, at most {:.3g} times the traffic ({}).",
      most, sentence_of(outcomes, "FP8 wires", "FP32 wires"), traffic, setup(study));
}

std::vector<std::string> findings_of(const Study& study) {
  std::vector<std::string> findings{answer_of(study)};
  for (const Point& point : study.points) {
    if (&point == &study.reference(point)) continue;
    const ParallelRun& first = point.runs.front();
    std::vector<double> gaps;
    for (std::size_t s = 0; s < study.seeds; ++s) gaps.push_back(study.gap(point, s));
    const double resolution = 100.0 * share_resolution(static_cast<std::size_t>(first.parameters));
    findings.push_back(fmt::format(
        "{} workers, {}: gap to FP32 wires {} nats, mean gradient at {} dB, {} underflow, {} "
        "saturated, {:.3g} times the traffic ({}, {}; {}).",
        point.options.ranks, point.name(), interval_text(gaps),
        interval_text(each_repeat(point.runs, figure(&ParallelRun::sqnr_db))),
        share_text(each_repeat(point.runs, figure(&ParallelRun::underflow_percent)), 1.0,
                   resolution),
        share_text(each_repeat(point.runs, figure(&ParallelRun::saturated_percent)), 1.0,
                   resolution),
        first.bytes_per_step / study.reference(point).runs.front().bytes_per_step, setup(study),
        counted(study.seeds, "seed"), kIntervalMeaning));
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
  for (Point& point : study.points) point.runs.resize(study.seeds);
  parallel_points(points, study.points.size() * study.seeds, [&](std::size_t i) {
    Point& point = study.points[i / study.seeds];
    const std::size_t s = i % study.seeds;
    point.runs[s] = train_parallel(fabric, study.settings, study.variant,
                                   {point.options, study.whole_tensor_zero},
                                   repeat_of(context, s, study.seeds).seed);
  });
  const auto joined = [&](Verdict verdict) {
    std::vector<Table> draws;
    for (std::size_t s = 0; s < study.seeds; ++s) draws.push_back(run_table(study, s, verdict));
    return join_repeats(draws, {"gap", "loss", "sqnr", "underflow", "saturated", "smallest_mu"});
  };
  Results results;
  results.tables = {joined(Verdict::worst_seed).front(), joined(Verdict::this_seed).back(),
                    curve_table(study)};
  if (Plot gaps = gap_plot(study); !gaps.series.empty()) results.plots.push_back(std::move(gaps));
  results.plots.push_back(curve_plot(study));
  results.findings = findings_of(study);
  return results;
}

}  // namespace fp8lab::experiments
