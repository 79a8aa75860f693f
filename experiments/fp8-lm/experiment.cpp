#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "data-parallel/workers.hpp"
#include "fp8lab/core/counted.hpp"
#include "train/curves.hpp"
#include "train/settings.hpp"
#include "train/standing.hpp"
#include "training/train/systems.hpp"

namespace fp8lab::experiments {
namespace {

struct Study {
  StudySettings settings;
  std::vector<train::TrainingSystem> systems;  ///< the reference and the control first
  std::size_t seeds = 0;
  std::vector<ParallelRun> runs;  ///< systems x seeds

  [[nodiscard]] const ParallelRun& run(std::size_t system, std::size_t seed) const {
    return runs[system * seeds + seed];
  }
  [[nodiscard]] double tail(std::size_t system, std::size_t seed) const {
    return tail_loss(settings, run(system, seed).losses);
  }
  [[nodiscard]] std::vector<double> tails(std::size_t system) const {
    std::vector<double> all;
    for (std::size_t s = 0; s < seeds; ++s) all.push_back(tail(system, s));
    return all;
  }
  [[nodiscard]] Judgement judgement(std::size_t system) const {
    std::vector<bool> bad;
    for (std::size_t s = 0; s < seeds; ++s)
      bad.push_back(diverged(settings, run(system, s).losses, run(0, s).losses));
    return judge_seeds(tails(system), tails(0), tails(1), settings.follow_nats, bad);
  }
};

struct Settings {
  StudySettings study;
  train::TrainingSystem reference;
  train::TrainingSystem control;
  std::vector<train::TrainingSystem> systems;
  int ranks = 0;
  Topology topology = Topology::ring;
  std::size_t seeds = 0;

  static constexpr auto system_named(const char* parameter) {
    return [parameter](const std::string& name) {
      return train::find_training_system(name, parameter);
    };
  }
  static constexpr auto fields() {
    return std::tuple{group(&Settings::study, study_fields()),
                      group(&Settings::study, field("samples", &StudySettings::samples)),
                      field("reference", &Settings::reference, system_named("reference")),
                      field("control", &Settings::control, system_named("control")),
                      field("systems", &Settings::systems, system_named("systems")),
                      field("ranks", &Settings::ranks),
                      field("topology", &Settings::topology, find_topology),
                      field("seeds", &Settings::seeds)};
  }
};

Study read_study(const Parameters& parameters) {
  const auto p = read_parameters<Settings>(parameters);
  Study study{
      .settings = p.study, .systems = {p.reference, p.control}, .seeds = p.seeds, .runs = {}};
  for (const train::TrainingSystem& system : p.systems) {
    const bool taken = std::any_of(study.systems.begin(), study.systems.end(),
                                   [&](const auto& one) { return one.name == system.name; });
    require(!taken, "systems", "each system once, and neither reference nor control",
            std::string(system.name));
    study.systems.push_back(system);
  }
  for (train::TrainingSystem& system : study.systems) {
    system.reduction.ranks = p.ranks;
    system.reduction.topology = p.topology;
  }
  study.runs.resize(study.systems.size() * study.seeds);
  return study;
}

std::string setup_of_a_run(const Study& study) {
  const StudySettings& s = study.settings;
  return fmt::format("{} parameters, {} ranks of {} tokens per step, {} steps",
                     study.runs.front().parameters, study.systems.front().reduction.ranks,
                     s.sequences * s.shape.length, s.schedule.steps);
}

std::string setup(const Study& study) {
  return fmt::format("{}, {}", setup_of_a_run(study), counted(study.seeds, "seed"));
}

Table system_table(const Study& study) {
  Table table("systems",
              fmt::format("Systems against {} ({})", study.systems.front().name, setup(study)),
              {{"system", "", "of fp8lab train --recipe"},
               {"what", "", "what it is"},
               {"standing", "", fmt::format("{}, by the band", kStandings)},
               {"diverged", "seeds", kDivergedMeaning},
               {"gap", "nats", "tail loss above the reference's, mean over the other seeds"},
               {"gap_min", "nats", "smallest"},
               {"gap_max", "nats", "largest"},
               {"band", "nats", "a gap above this is not noise: from the spread of the control"},
               {"sqnr", "dB", "mean gradient against FP32 wires', first seed"},
               {"saturated", "%", "elements of the sums at max finite, first seed"},
               {"smallest_mu", "1", "auto-scaling: of all tensors at the end, first seed"},
               {"traffic", "kB", "sent by the busiest rank per step, gradients"},
               {"states", "kB", "master weights, moments and scales of the fullest rank"}});
  for (std::size_t i = 0; i < study.systems.size(); ++i) {
    const Judgement j = study.judgement(i);
    const ParallelRun& run = study.run(i, 0);
    table.add_row({std::string(study.systems[i].name), std::string(study.systems[i].what),
                   std::string(to_string(j.standing)), static_cast<std::int64_t>(j.diverged),
                   j.mean, j.min, j.max, j.band, run.sqnr_db, run.saturated_percent,
                   run.smallest_mu, 1e-3 * run.bytes_per_step,
                   1e-3 * static_cast<double>(run.state_bytes)});
  }
  return table;
}

Table repeat_table(const Study& study) {
  Table table("repeats", "Each run",
              {{"system", "", "as in systems"},
               {"seed", "1", "of weights and data, from the first"},
               {"loss", "nats", "mean over the ranks and the last steps"},
               {"gap", "nats", "above the reference's of this seed"}});
  for (std::size_t i = 0; i < study.systems.size(); ++i)
    for (std::size_t s = 0; s < study.seeds; ++s)
      table.add_row({std::string(study.systems[i].name), static_cast<std::int64_t>(s),
                     study.tail(i, s), study.tail(i, s) - study.tail(0, s)});
  return table;
}

Plot curve_plot(const Study& study) {
  Plot plot{"loss",
            fmt::format("Loss of the first seed ({})", setup_of_a_run(study)),
            {"step"},
            {"loss, nats"},
            {}};
  for (std::size_t i = 0; i < study.systems.size(); ++i)
    plot.series.push_back(loss_curve(std::string(study.systems[i].name), study.run(i, 0).losses));
  plot.series.front().style = Series::Style::dashed;
  return plot;
}

/// Curves of losses lie on each other; their gaps do not.
Plot gap_plot(const Study& study) {
  Plot plot{"gap",
            fmt::format("Loss above {} ({})", study.systems[0].name, setup(study)),
            {"step"},
            {"gap, nats"},
            {}};
  const auto losses_of = [&](std::size_t system) {
    std::vector<std::vector<double>> losses;
    for (std::size_t seed = 0; seed < study.seeds; ++seed)
      losses.push_back(study.run(system, seed).losses);
    return losses;
  };
  for (std::size_t i = 1; i < study.systems.size(); ++i)
    plot.series.push_back(gap_band(std::string(study.systems[i].name), losses_of(i), losses_of(0)));
  return plot;
}

/// What the standing says of a system, as a verb.
std::string verb_of(const Judgement& j, std::string_view reference) {
  if (j.diverged > 0) return fmt::format("diverges in {} of {} seeds", j.diverged, j.seeds);
  switch (j.standing) {
    case Standing::follows:
      return fmt::format("follows {}", reference);
    case Standing::leaves:
      return fmt::format("leaves {}", reference);
    case Standing::lower:
      return fmt::format("ends lower than {}", reference);
    case Standing::cannot_tell:
      break;
  }
  return fmt::format("cannot be told from {}", reference);
}

std::string answer_of(const Study& study) {
  std::vector<std::string> clauses;
  for (std::size_t i = 1; i < study.systems.size(); ++i)
    clauses.push_back(fmt::format("{} {} at {:.3g} times the gradient traffic",
                                  study.systems[i].name,
                                  verb_of(study.judgement(i), study.systems[0].name),
                                  study.run(i, 0).bytes_per_step / study.run(0, 0).bytes_per_step));
  return fmt::format("{} ({}).", in_words(clauses), setup(study));
}

std::vector<std::string> findings_of(const Study& study) {
  std::vector<std::string> findings{answer_of(study)};
  const ParallelRun& reference = study.run(0, 0);
  for (std::size_t i = 1; i < study.systems.size(); ++i) {
    const ParallelRun& run = study.run(i, 0);
    findings.push_back(fmt::format(
        "{}: {} against {}; {:.3g} times the gradient traffic, {:.3g} times the states of a rank.",
        study.systems[i].name, text_of(study.judgement(i)), study.systems.front().name,
        run.bytes_per_step / reference.bytes_per_step,
        static_cast<double>(run.state_bytes) / static_cast<double>(reference.state_bytes)));
  }
  findings.push_back(fmt::format("{} ({}).", kBandMeaning, setup(study)));
  return findings;
}

}  // namespace

Results fp8_lm(const RunContext& context) {
  Study study = read_study(context.parameters);
  study.settings.backend = context.backend;
  Fabric& fabric = context.fabric == nullptr ? in_process_fabric() : *context.fabric;
  RunContext points = context;
  if (!fabric.concurrent()) points.threads = 1;
  parallel_points(points, study.runs.size(), [&](std::size_t i) {
    const train::TrainingSystem& system = study.systems[i / study.seeds];
    StudySettings settings = study.settings;
    settings.optimizer = system.optimizer;
    const Variant variant{"system", std::string(system.name), system.blocks, 1.0, false};
    study.runs[i] =
        train_parallel(fabric, settings, variant, {system.reduction, system.whole_tensor_zero},
                       context.seed + i % study.seeds);
  });
  Results results;
  results.tables = {system_table(study), repeat_table(study)};
  results.plots = {gap_plot(study), curve_plot(study)};
  results.findings = findings_of(study);
  return results;
}

}  // namespace fp8lab::experiments
