#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/parallel.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/counted.hpp"
#include "optimizer-precision/rows.hpp"
#include "train/curves.hpp"
#include "train/settings.hpp"

namespace fp8lab::experiments {
namespace {

/// What the seeds of one row say together.
struct Summary {
  Spread tail;
  Spread gap;
  OutcomeCounts outcomes{};
};

struct Comparison {
  StudySettings settings;
  std::vector<OptimizerRow> rows;
  std::size_t seeds = 0;
  std::vector<TrainingRun> runs;  ///< rows x seeds

  [[nodiscard]] const TrainingRun& run(std::size_t row, std::size_t seed) const {
    return runs[row * seeds + seed];
  }
};

struct Settings {
  StudySettings study;
  std::vector<OptimizerRow> rows;
  std::size_t seeds = 0;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  double weight_decay = 0.0;

  static constexpr auto fields() {
    return std::tuple{
        group(&Settings::study, study_fields()), field("rows", &Settings::rows, find_optimizer_row),
        field("seeds", &Settings::seeds),        field("beta1", &Settings::beta1),
        field("beta2", &Settings::beta2),        field("weight_decay", &Settings::weight_decay)};
  }
};

Comparison read_comparison(const Parameters& parameters) {
  const auto p = read_parameters<Settings>(parameters);
  Comparison c{.settings = p.study, .rows = p.rows, .seeds = p.seeds, .runs = {}};
  for (OptimizerRow& row : c.rows) {
    row.states.beta1 = p.beta1;
    row.states.beta2 = p.beta2;
    row.states.weight_decay = p.weight_decay;
  }
  c.runs.resize(c.rows.size() * c.seeds);
  return c;
}

Summary summarize(const Comparison& c, std::size_t row) {
  std::vector<double> tail;
  std::vector<double> gap;
  Summary summary;
  for (std::size_t s = 0; s < c.seeds; ++s) {
    const std::vector<double>& losses = c.run(row, s).losses;
    const std::vector<double>& reference = c.run(0, s).losses;
    tail.push_back(tail_loss(c.settings, losses));
    gap.push_back(tail.back() - tail_loss(c.settings, reference));
    ++summary.outcomes[static_cast<std::size_t>(judge(c.settings, losses, reference))];
  }
  summary.tail = spread_of(tail);
  summary.gap = spread_of(gap);
  return summary;
}

std::string setup(const Comparison& c) {
  return fmt::format("{}, {}", describe_setup(c.settings, c.runs.front().parameters),
                     counted(c.seeds, "seed"));
}

Table verdict_table(const Comparison& c, const std::vector<Summary>& summaries) {
  Table table("verdicts", fmt::format("Optimizer states against {} ({})", c.rows[0].name, setup(c)),
              {{"row", "", "row of Table 6, or its formats without scales"},
               {"gemms", "", "arithmetic of the linear layers"},
               {"master", "", "format of the master weights"},
               {"gradient", "", "format that gradients are stored in before the step"},
               {"m", "", "format of the first moment"},
               {"v", "", "format of the second moment"},
               {"verdict", "", "of the worst seed: follows, stalls or diverges"},
               {"gap", "nats", "tail loss above the reference's, mean over seeds"},
               {"gap_min", "nats", "smallest"},
               {"gap_max", "nats", "largest"},
               {"loss", "nats", "mean loss of the last steps, mean over seeds"},
               {"diverged", "seeds", "seeds that diverged"}});
  for (std::size_t i = 0; i < c.rows.size(); ++i) {
    const AdamWOptions& o = c.rows[i].states;
    const Summary& s = summaries[i];
    table.add_row({c.rows[i].name, c.rows[i].variant.name, describe(o.master), describe(o.gradient),
                   describe(o.m), describe(o.v), to_string(worst(s.outcomes)), s.gap.mean,
                   s.gap.min, s.gap.max, s.tail.mean, s.outcomes[2]});
  }
  return table;
}

Series curve(const Comparison& c, std::size_t row) {
  Series series = loss_curve(c.rows[row].name, c.run(row, 0).losses);
  if (row == 0) series.style = Series::Style::dashed;
  return series;
}

Table curve_table(const Comparison& c) {
  Table table("curves", "Loss over the steps, first seed, means over intervals",
              {{"row", "", "as in verdicts"},
               {"step", "steps", "middle of the stretch"},
               {"loss", "nats", "mean; nan once the run broke off"}});
  for (std::size_t row = 0; row < c.rows.size(); ++row) {
    const Series series = curve(c, row);
    for (std::size_t i = 0; i < series.x.size(); ++i)
      table.add_row({c.rows[row].name, series.x[i], series.y[i]});
  }
  return table;
}

Plot curve_plot(const Comparison& c, bool scaled) {
  Plot plot{scaled ? "loss_scaled" : "loss_unscaled",
            fmt::format("Loss with optimizer states {} scales ({})", scaled ? "with" : "without",
                        setup(c)),
            {"step"},
            {"loss, nats"},
            {}};
  for (std::size_t row = 0; row < c.rows.size(); ++row)
    if (row == 0 || c.rows[row].scaled == scaled) plot.series.push_back(curve(c, row));
  return plot;
}

/// Curves of losses lie on each other; their gaps do not.
Plot gap_plot(const Comparison& c, bool scaled) {
  Plot plot{scaled ? "gap_scaled" : "gap_unscaled",
            fmt::format("Loss with optimizer states {} scales, above {} ({})",
                        scaled ? "with" : "without", c.rows[0].name, setup(c)),
            {"step"},
            {"gap, nats"},
            {}};
  const auto losses_of = [&](std::size_t row) {
    std::vector<std::vector<double>> losses;
    for (std::size_t seed = 0; seed < c.seeds; ++seed) losses.push_back(c.run(row, seed).losses);
    return losses;
  };
  for (std::size_t row = 1; row < c.rows.size(); ++row)
    if (c.rows[row].scaled == scaled)
      plot.series.push_back(gap_band(c.rows[row].name, losses_of(row), losses_of(0)));
  return plot;
}

/// "gap to bf16 +0.1 ± 0.05 nats"; a run that broke off has no such figure.
std::string gap_text(const Summary& s, const std::string& reference) {
  if (!std::isfinite(s.gap.mean))
    return fmt::format("its loss is not a number at the end, so it has no gap to {}", reference);
  if (std::isnan(s.gap.half_width))
    return fmt::format("gap to {} {:+.3f} nats, one seed", reference, s.gap.mean);
  return fmt::format("gap to {} {:+.3f} ± {:.2g} nats", reference, s.gap.mean, s.gap.half_width);
}

std::vector<std::string> findings_of(const Comparison& c, const std::vector<Summary>& summaries) {
  NamedOutcomes outcomes;
  for (std::size_t i = 1; i < c.rows.size(); ++i)
    outcomes.add(c.rows[i].name, worst(summaries[i].outcomes));
  std::vector<std::string> findings{
      fmt::format("{}, by the worst of their seeds ({}).",
                  sentence_of(outcomes, "sets of optimizer states", c.rows[0].name), setup(c))};
  for (std::size_t i = 1; i < c.rows.size(); ++i) {
    const Summary& s = summaries[i];
    findings.push_back(fmt::format("{} {}: {} ({}; {}).", c.rows[i].name,
                                   to_string(worst(s.outcomes)), gap_text(s, c.rows[0].name),
                                   kIntervalMeaning, setup(c)));
  }
  return findings;
}

}  // namespace

Results optimizer_precision(const RunContext& context) {
  Comparison c = read_comparison(context.parameters);
  c.settings.backend = context.backend;
  parallel_points(context, c.runs.size(), [&](std::size_t i) {
    const OptimizerRow& row = c.rows[i / c.seeds];
    StudySettings settings = c.settings;
    settings.optimizer = row.states;
    c.runs[i] = train_variant(settings, row.variant, {}, context.seed + i % c.seeds);
  });
  std::vector<Summary> summaries;
  for (std::size_t row = 0; row < c.rows.size(); ++row) summaries.push_back(summarize(c, row));
  Results results;
  results.tables = {verdict_table(c, summaries), curve_table(c)};
  for (const bool scaled : {true, false}) {
    if (Plot gaps = gap_plot(c, scaled); !gaps.series.empty())
      results.plots.push_back(std::move(gaps));
    Plot plot = curve_plot(c, scaled);
    if (plot.series.size() > 1) results.plots.push_back(std::move(plot));
  }
  results.findings = findings_of(c, summaries);
  return results;
}

}  // namespace fp8lab::experiments
