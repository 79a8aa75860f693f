#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "fp8lab/core/counted.hpp"
#include "leading-indicators/faults.hpp"
#include "leading-indicators/indicators.hpp"
#include "optimizer-precision/rows.hpp"
#include "train/settings.hpp"

namespace fp8lab::experiments {
namespace {

struct Run {
  std::string name;
  Variant variant;
  AdamWOptions optimizer;
  std::vector<std::vector<StepFigures>> steps;  ///< by seed
  std::vector<WatchedRun> watched;
};

struct FaultRow {
  Fault fault;
  std::int64_t snapshot_every = 0;
  FaultyRun run;
};

struct Study {
  StudySettings settings;
  KillThresholds thresholds;
  double leave_gap = kLeaveGap;
  std::size_t seeds = 0;
  std::vector<Run> runs;  ///< the shadow first
  Variant fault_variant;
  std::vector<FaultRow> faults;  ///< the run without a fault first
};

/// `VARIANT` or `VARIANT@STATES`.
Run find_run(const std::string& name) {
  const auto at = name.find('@');
  Run run{name, find_variant(name.substr(0, at)), {}, {}, {}};
  if (at != std::string::npos) run.optimizer = find_optimizer_row(name.substr(at + 1)).states;
  return run;
}

struct Settings {
  StudySettings study;
  KillThresholds thresholds;
  double leave_gap = 0.0;
  std::vector<Run> runs;
  std::size_t seeds = 0;
  Variant fault_variant;
  double fault_at = 0.0;
  std::vector<std::int64_t> snapshot_every;

  static constexpr auto fields() {
    return std::tuple{group(&Settings::study, study_fields()),
                      group(&Settings::study, outlier_fields()),
                      group(&Settings::thresholds, field("amax_ratio", &KillThresholds::amax_ratio),
                            field("moment_ratio", &KillThresholds::moment_ratio),
                            field("loss_gap", &KillThresholds::loss_gap),
                            field("window", &KillThresholds::window),
                            field("patience", &KillThresholds::patience)),
                      field("leave_gap", &Settings::leave_gap),
                      field("runs", &Settings::runs, find_run),
                      field("seeds", &Settings::seeds),
                      field("fault_variant", &Settings::fault_variant, find_variant),
                      field("fault_at", &Settings::fault_at),
                      field("snapshot_every", &Settings::snapshot_every)};
  }
};

Study read_study(const Parameters& parameters) {
  auto p = read_parameters<Settings>(parameters);
  Study study{.settings = std::move(p.study),
              .thresholds = p.thresholds,
              .leave_gap = p.leave_gap,
              .seeds = p.seeds,
              .runs = std::move(p.runs),
              .fault_variant = std::move(p.fault_variant),
              .faults = {}};
  study.runs.insert(study.runs.begin(), find_run("bf16"));
  const auto step =
      static_cast<std::int64_t>(p.fault_at * static_cast<double>(study.settings.schedule.steps));
  study.faults.push_back({{FaultKind::none, step}, 0, {}});
  for (const FaultKind kind : {FaultKind::transient, FaultKind::persistent})
    for (const std::int64_t every : p.snapshot_every)
      study.faults.push_back({{kind, step}, every, {}});
  return study;
}

void run_study(const RunContext& context, Study& study) {
  const std::size_t runs = study.runs.size() * study.seeds;
  for (Run& run : study.runs) run.steps.resize(study.seeds);
  parallel_points(context, runs + study.faults.size(), [&](std::size_t i) {
    if (i < runs) {
      Run& run = study.runs[i / study.seeds];
      const std::size_t s = i % study.seeds;
      StudySettings settings = study.settings;
      settings.optimizer = run.optimizer;
      run.steps[s] = record_run(settings, run.variant,
                                run.variant.outliers ? settings.outliers : train::OutlierChannels{},
                                repeat_of(context, s, study.seeds).seed);
    } else {
      FaultRow& row = study.faults[i - runs];
      row.run = run_with_fault(study.settings, study.fault_variant, context.seed, row.fault,
                               row.snapshot_every);
    }
  });
  for (Run& run : study.runs)
    for (std::size_t s = 0; s < study.seeds; ++s)
      run.watched.push_back(
          watch(study.thresholds, run.steps[s], study.runs.front().steps[s], study.leave_gap));
}

std::string setup(const Study& study) {
  return describe_setup(study.settings,
                        static_cast<std::int64_t>(study.faults.front().run.weights.size()));
}

/// A step for a table; -1 for never.
std::int64_t or_never(std::optional<std::int64_t> step) { return step.value_or(-1); }

Table lead_table(const Study& study) {
  Table table("leads", fmt::format("Alarms against a BF16 shadow ({})", setup(study)),
              {{"run", "", "variant, and optimizer states after @"},
               {"repeat", "1", "weights and data, from 0"},
               {"left", "step", "step from which the loss gap stays above leave_gap; -1: never"},
               {"gradient_amax", "step", "first alarm; -1: never"},
               {"second_moment", "step", "first alarm; -1: never"},
               {"loss_gap", "step", "first alarm; -1: never"},
               {"first_alarm", "step",
                "first alarm of any kind, where a switch would end the run; -1: never"},
               {"lead", "steps", "steps from the first alarm to left; 0 if either is missing"},
               {"gap", "nats", "loss above the shadow's at the end, over the window"}});
  for (std::size_t i = 1; i < study.runs.size(); ++i) {
    for (std::size_t s = 0; s < study.seeds; ++s) {
      const WatchedRun& w = study.runs[i].watched[s];
      std::optional<std::int64_t> first;
      for (const auto& alarm : w.alarms)
        if (alarm && (!first || *alarm < *first)) first = alarm;
      const std::int64_t lead = first && w.left ? *w.left - *first : 0;
      table.add_row({study.runs[i].name, static_cast<std::int64_t>(s), or_never(w.left),
                     or_never(w.alarms[0]), or_never(w.alarms[1]), or_never(w.alarms[2]),
                     or_never(first), lead,
                     w.values[2].empty() ? std::nan("") : w.values[2].back()});
    }
  }
  return table;
}

Table value_table(const Study& study) {
  Table table("indicators", "Ratios to the shadow and the loss gap, step by step",
              {{"run", "", "as in leads"},
               {"repeat", "1", "as in leads"},
               {"step", "steps", "from 0"},
               {"gradient_amax", "1", "of the blocks' weights over the shadow's, window mean"},
               {"second_moment", "1", "mean v over the shadow's, window mean"},
               {"loss_gap", "nats", "loss above the shadow's, window mean"}});
  for (std::size_t i = 1; i < study.runs.size(); ++i) {
    for (std::size_t s = 0; s < study.seeds; ++s) {
      const auto& values = study.runs[i].watched[s].values;
      for (std::size_t step = 0; step < values[0].size(); ++step)
        table.add_row({study.runs[i].name, static_cast<std::int64_t>(s),
                       static_cast<std::int64_t>(step), values[0][step], values[1][step],
                       values[2][step]});
    }
  }
  return table;
}

Table fault_table(const Study& study) {
  Table table("faults",
              fmt::format("A NaN in one gradient at step {}, {} ({})",
                          study.faults.front().fault.step, study.fault_variant.name, setup(study)),
              {{"fault", "", "none, transient or persistent"},
               {"snapshot_every", "steps", "0: no guard"},
               {"finite_losses", "%", "steps that ended with a finite loss"},
               {"rollbacks", "1", "times the state went back"},
               {"replayed", "steps", "taken again"},
               {"skipped", "steps", "left out in the end"},
               {"passes", "1", "forward and backward passes, relative to the steps of the run"},
               {"snapshot", "MB", "one snapshot: states, scales, amaxes"},
               {"copied", "MB", "by snapshots, per step"},
               {"loss", "nats", "mean of the last steps; nan if one was not finite"},
               {"same_bits", "", "weights end with the bits of the run without a fault"}});
  for (const FaultRow& row : study.faults) {
    const FaultyRun& run = row.run;
    const auto steps = static_cast<double>(run.losses.size());
    const auto finite = std::count_if(run.losses.begin(), run.losses.end(),
                                      [](double loss) { return std::isfinite(loss); });
    const double megabytes = static_cast<double>(run.snapshot_bytes) * 1e-6;
    table.add_row({std::string(to_string(row.fault.kind)), row.snapshot_every,
                   100.0 * static_cast<double>(finite) / steps, run.rollbacks, run.replayed,
                   run.skipped, static_cast<double>(run.attempts) / steps, megabytes,
                   megabytes * static_cast<double>(run.snapshots) / steps,
                   tail_loss(study.settings, run.losses),
                   same_weights(run, study.faults.front().run)});
  }
  return table;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
double finite_or_gap(double value) { return std::isfinite(value) ? value : std::nan(""); }

/// The median of the seeds, in a band from the least to the largest.
Plot indicator_plot(const Study& study, Indicator indicator, const char* name, const Axis& y) {
  std::string what(to_string(indicator));
  what.front() = static_cast<char>(std::toupper(what.front()));
  Plot plot{name,
            fmt::format("{} against a BF16 shadow{} ({})", what,
                        study.seeds == 1 ? "" : fmt::format(", median of {} seeds", study.seeds),
                        setup(study)),
            {"step"},
            y,
            {}};
  for (std::size_t i = 1; i < study.runs.size(); ++i) {
    Series series{study.runs[i].name, {}, {}, Series::Style::lines};
    const auto at = [&](std::size_t s) -> const std::vector<double>& {
      return study.runs[i].watched[s].values[static_cast<std::size_t>(indicator)];
    };
    std::size_t steps = 0;
    for (std::size_t s = 0; s < study.seeds; ++s) steps = std::max(steps, at(s).size());
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<double> seeds;  // one that broke off counts as infinite
      for (std::size_t s = 0; s < study.seeds; ++s)
        seeds.push_back(step < at(s).size() && std::isfinite(at(s)[step]) ? at(s)[step]
                                                                          : kInfinity);
      std::ranges::sort(seeds);
      series.x.push_back(static_cast<double>(step));
      series.y.push_back(
          finite_or_gap(std::midpoint(seeds[(study.seeds - 1) / 2], seeds[study.seeds / 2])));
      if (study.seeds == 1) continue;
      series.low.push_back(finite_or_gap(seeds.front()));
      series.high.push_back(finite_or_gap(seeds.back()));
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

/// `at step 24 ± 12 in 2 of 3 runs`, where a run without it counts with the last step, or `at step
/// 9 in 1 of 3 runs`; empty where it happens in none. `step_of` one: none where not.
template <typename StepOf>
std::string steps_text(const Run& run, std::int64_t last, const StepOf& step_of) {
  std::vector<double> happened;
  for (const WatchedRun& w : run.watched)
    if (const auto step = step_of(w)) happened.push_back(static_cast<double>(*step));
  if (happened.empty()) return "";
  const std::string share = fmt::format("in {} of {} runs", happened.size(), run.watched.size());
  if (2 * happened.size() < run.watched.size())
    return fmt::format("at {} {} {}", happened.size() == 1 ? "step" : "steps",
                       fmt::join(happened, " and "), share);
  std::vector<double> all = happened;
  all.resize(run.watched.size(), static_cast<double>(last));
  return fmt::format("at step {} {}{}", interval_text(all, 1.0, 1.0), share,
                     all.size() == happened.size() ? "" : ", one without it counted as the last");
}

std::string alarm_list(const Run& run, std::int64_t last) {
  std::string list;
  for (const Indicator indicator : kIndicators) {
    const std::string steps = steps_text(run, last, [&](const WatchedRun& w) {
      return w.alarms[static_cast<std::size_t>(indicator)];
    });
    if (!steps.empty())
      list += fmt::format("{}{} {}", list.empty() ? "" : "; ", to_string(indicator), steps);
  }
  return list.empty() ? "no alarm" : list;
}

std::string guard_text(std::int64_t snapshot_every) {
  if (snapshot_every == 0) return "no guard";
  return snapshot_every == 1 ? "a snapshot every step"
                             : fmt::format("a snapshot every {} steps", snapshot_every);
}

/// Whether alarms come before the loss leaves its shadow.
std::string answer_of(const Study& study) {
  std::vector<std::int64_t> leads;
  std::size_t left = 0;
  std::size_t stayed = 0;
  std::size_t false_alarms = 0;
  for (std::size_t i = 1; i < study.runs.size(); ++i)
    for (const WatchedRun& w : study.runs[i].watched) {
      std::optional<std::int64_t> first;
      for (const auto& alarm : w.alarms)
        if (alarm && (!first || *alarm < *first)) first = alarm;
      ++(w.left ? left : stayed);
      if (!w.left && first) ++false_alarms;
      if (w.left && first && *first < *w.left) leads.push_back(*w.left - *first);
    }
  std::ranges::sort(leads);
  const std::string lead =
      leads.empty() ? "" : fmt::format(", by a median of {} steps", leads[leads.size() / 2]);
  return fmt::format(
      "An indicator gave an alarm before the loss left its shadow's in {} of {} runs{}, and in {} "
      "of the {} runs whose loss did not leave.",
      leads.size(), left, lead, false_alarms, stayed);
}

std::vector<std::string> findings_of(const Study& study) {
  const std::int64_t last = study.settings.schedule.steps;
  std::vector<std::string> findings{answer_of(study)};
  for (std::size_t i = 1; i < study.runs.size(); ++i) {
    const Run& run = study.runs[i];
    const std::string left = steps_text(run, last, [](const WatchedRun& w) { return w.left; });
    const std::string end = left.empty()
                                ? fmt::format("the loss never leaves its shadow in {} steps", last)
                                : "the loss leaves its shadow " + left;
    findings.push_back(
        fmt::format("{}: {}; {} ({}).", run.name, alarm_list(run, last), end, kIntervalMeaning));
  }
  for (const FaultRow& row : study.faults) {
    if (row.fault.kind == FaultKind::none) continue;
    const auto finite = std::count_if(row.run.losses.begin(), row.run.losses.end(),
                                      [](double loss) { return std::isfinite(loss); });
    findings.push_back(fmt::format(
        "A {} NaN at step {} of {}, {}: {} end finite, {}, {} repeated, {} skipped{}.",
        to_string(row.fault.kind), row.fault.step, row.run.losses.size(),
        guard_text(row.snapshot_every), counted(finite, "step"),
        counted(row.run.rollbacks, "rollback"), counted(row.run.replayed, "step"), row.run.skipped,
        same_weights(row.run, study.faults.front().run) ? ", the bits of a run without it" : ""));
  }
  return findings;
}

}  // namespace

Results leading_indicators(const RunContext& context) {
  Study study = read_study(context.parameters);
  study.settings.backend = context.backend;
  run_study(context, study);
  Results results;
  results.tables = {lead_table(study), fault_table(study), value_table(study)};
  results.plots = {
      indicator_plot(study, Indicator::gradient_amax, "gradient_amax",
                     {"gradient amax / shadow's", true}),
      indicator_plot(study, Indicator::second_moment, "second_moment", {"mean v / shadow's", true}),
      indicator_plot(study, Indicator::loss_gap, "loss_gap", {"loss gap, nats"})};
  results.findings = findings_of(study);
  return results;
}

}  // namespace fp8lab::experiments
