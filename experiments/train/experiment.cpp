#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/parallel.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/counted.hpp"
#include "train/curves.hpp"
#include "train/settings.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {
namespace {

constexpr const char* kSpreadMeaning = "half width of the interval that holds 99 % of single seeds";

/// One run of the study: a variant or a ladder's step, from one seed.
struct Point {
  Variant variant;
  train::OutlierChannels outliers;
  std::uint64_t seed = 0;
  TrainingRun run;
};

struct Study {
  StudySettings settings;
  std::vector<Variant> variants;
  std::size_t seeds = 0;
  std::vector<LadderStep> ladder;
  std::vector<Point> points;  ///< variants x seeds, then the ladder x seeds

  [[nodiscard]] const TrainingRun& run(std::size_t row, std::size_t seed) const {
    return points[row * seeds + seed].run;
  }
  /// Of all that was run: variants, then steps of the ladder.
  [[nodiscard]] std::size_t rows() const { return variants.size() + ladder.size(); }
  [[nodiscard]] double gap(const TrainingRun& run, std::size_t seed) const {
    return tail_loss(settings, run.losses) - tail_loss(settings, this->run(0, seed).losses);
  }
};

struct Settings {
  StudySettings study;
  std::vector<Variant> variants;
  std::size_t seeds = 0;
  std::vector<std::string> ladders;
  std::vector<double> underflow_log2;
  std::vector<double> outliers_log2;
  std::vector<double> accumulator_bits;

  static constexpr auto fields() {
    return std::tuple{group(&Settings::study, study_fields()),
                      group(&Settings::study, outlier_fields()),
                      group(&Settings::study, field("samples", &StudySettings::samples)),
                      field("variants", &Settings::variants, find_variant),
                      field("seeds", &Settings::seeds),
                      field("ladders", &Settings::ladders),
                      field("underflow_log2", &Settings::underflow_log2),
                      field("outliers_log2", &Settings::outliers_log2),
                      field("accumulator_bits", &Settings::accumulator_bits)};
  }

  [[nodiscard]] const std::vector<double>& values(const std::string& ladder) const {
    if (ladder == "underflow") return underflow_log2;
    return ladder.starts_with("outliers") ? outliers_log2 : accumulator_bits;
  }
};

Study read_study(const Parameters& parameters, std::uint64_t seed) {
  const auto p = read_parameters<Settings>(parameters);
  Study study{
      .settings = p.study, .variants = p.variants, .seeds = p.seeds, .ladder = {}, .points = {}};
  for (const std::string& name : p.ladders)
    for (LadderStep& step : find_ladder(name, p.values(name), study.settings.outliers.count))
      study.ladder.push_back(std::move(step));
  for (const Variant& v : study.variants)
    for (std::size_t s = 0; s < study.seeds; ++s)
      study.points.push_back(
          {v, v.outliers ? study.settings.outliers : train::OutlierChannels{}, seed + s, {}});
  for (const LadderStep& step : study.ladder)
    for (std::size_t s = 0; s < study.seeds; ++s)
      study.points.push_back({step.variant, step.outliers, seed + s, {}});
  return study;
}

/// What the seeds of one variant or step of a ladder say together.
struct Summary {
  Spread tail;
  Spread gap;
  Spread gradient_zero;
  Spread activation_zero;
  Spread saturated;
  OutcomeCounts outcomes{};
};

Summary summarize(const Study& study, std::size_t row) {
  std::vector<double> tail;
  std::vector<double> gap;
  std::vector<double> gradient;
  std::vector<double> activation;
  std::vector<double> saturated;
  Summary summary;
  for (std::size_t s = 0; s < study.seeds; ++s) {
    const TrainingRun& run = study.run(row, s);
    tail.push_back(tail_loss(study.settings, run.losses));
    gap.push_back(study.gap(run, s));
    gradient.push_back(run.gradient_zero_percent);
    activation.push_back(run.activation_zero_percent);
    saturated.push_back(run.saturated_percent);
    ++summary.outcomes[static_cast<std::size_t>(
        judge(study.settings, run.losses, study.run(0, s).losses))];
  }
  summary.tail = spread_of(tail);
  summary.gap = spread_of(gap);
  summary.gradient_zero = spread_of(gradient);
  summary.activation_zero = spread_of(activation);
  summary.saturated = spread_of(saturated);
  return summary;
}

/// What all seeds do; none where they disagree.
std::optional<Outcome> agreed(const Summary& summary, std::size_t seeds) {
  for (const Outcome outcome : {Outcome::follows, Outcome::stalls, Outcome::diverges})
    if (summary.outcomes[static_cast<std::size_t>(outcome)] == static_cast<std::int64_t>(seeds))
      return outcome;
  return std::nullopt;
}

/// `NAME (+0.201 ± 0.05)`, appended to a list.
void append(std::string& list, const std::string& name, const Summary& summary) {
  const std::string text =
      std::isnan(summary.gap.mean) ? "a run broke off"
      : std::isnan(summary.gap.half_width)
          ? fmt::format("{:+.3f}", summary.gap.mean)
          : fmt::format("{:+.3f} ± {:.2g}", summary.gap.mean, summary.gap.half_width);
  list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name, text);
}

std::string setup(const Study& study) {
  return fmt::format("{}, {}", describe_setup(study.settings, study.points.front().run.parameters),
                     counted(study.seeds, "seed"));
}

Table verdict_table(const Study& study, const std::vector<Summary>& summaries) {
  Table table("verdicts", fmt::format("Runs against {} ({})", study.variants[0].name, setup(study)),
              {{"group", "", "purpose of the variant"},
               {"variant", "", "recipe of the linear layers in the blocks"},
               {"verdict", "", "of the worst seed: follows, stalls or diverges"},
               {"gap", "nats", "tail loss above the reference's, mean over seeds"},
               {"gap_min", "nats", "smallest"},
               {"gap_max", "nats", "largest"},
               {"loss", "nats", "mean loss of the last steps, mean over seeds"},
               {"gradient_zero", "%", "gradient elements that the cast made zero"},
               {"activation_zero", "%", "activation elements that the cast made zero"},
               {"saturated", "%", "elements of all roles at max finite"},
               {"diverged", "seeds", "seeds that diverged"},
               {"gap_spread", "nats", kSpreadMeaning}});
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    const Summary& s = summaries[i];
    table.add_row({study.variants[i].group, study.variants[i].name, to_string(worst(s.outcomes)),
                   s.gap.mean, s.gap.min, s.gap.max, s.tail.mean, s.gradient_zero.mean,
                   s.activation_zero.mean, s.saturated.mean, s.outcomes[2], s.gap.half_width});
  }
  return table;
}

Table repeat_table(const Study& study) {
  Table table("repeats", fmt::format("Each run ({})", setup(study)),
              {{"run", "", "variant, or step of a ladder"},
               {"seed", "1", "of weights and data, from the first"},
               {"verdict", "", "follows, stalls or diverges"},
               {"gap", "nats", "tail loss above the reference's of the same seed"},
               {"loss", "nats", "mean loss of the last steps; nan: it broke off"},
               {"gradient_zero", "%", "gradient elements that the cast made zero"},
               {"activation_zero", "%", "activation elements that the cast made zero"},
               {"saturated", "%", "elements of all roles at max finite"}});
  for (std::size_t row = 0; row < study.rows(); ++row)
    for (std::size_t s = 0; s < study.seeds; ++s) {
      const TrainingRun& run = study.run(row, s);
      table.add_row({study.points[row * study.seeds + s].variant.name, static_cast<std::int64_t>(s),
                     to_string(judge(study.settings, run.losses, study.run(0, s).losses)),
                     study.gap(run, s), tail_loss(study.settings, run.losses),
                     run.gradient_zero_percent, run.activation_zero_percent,
                     run.saturated_percent});
    }
  return table;
}

std::vector<std::vector<double>> losses_of(const Study& study, std::size_t variant) {
  std::vector<std::vector<double>> losses;
  for (std::size_t s = 0; s < study.seeds; ++s) losses.push_back(study.run(variant, s).losses);
  return losses;
}

/// Mean and band over the seeds.
Series curve(const Study& study, std::size_t variant) {
  Series series = loss_band(study.variants[variant].name, losses_of(study, variant));
  if (variant == 0) series.style = Series::Style::dashed;
  return series;
}

Series gap_curve(const Study& study, std::size_t variant) {
  return gap_band(study.variants[variant].name, losses_of(study, variant), losses_of(study, 0));
}

Table curve_table(const Study& study) {
  Table table("curves", "Loss over the steps, mean over the seeds, means over intervals",
              {{"variant", "", "as in verdicts"},
               {"step", "steps", "middle of the stretch"},
               {"loss", "nats", "mean over seeds; nan once a run broke off"},
               {"gap", "nats", "above the reference of the same seed, mean over seeds"},
               {"gap_min", "nats", "smallest of the seeds"},
               {"gap_max", "nats", "largest"}});
  for (std::size_t v = 0; v < study.variants.size(); ++v) {
    const Series loss = curve(study, v);
    const Series gap = gap_curve(study, v);
    for (std::size_t i = 0; i < loss.x.size(); ++i)
      table.add_row({study.variants[v].name, loss.x[i], loss.y[i], gap.y[i],
                     gap.low.empty() ? gap.y[i] : gap.low[i],
                     gap.high.empty() ? gap.y[i] : gap.high[i]});
  }
  return table;
}

std::vector<Plot> curve_plots(const Study& study) {
  std::vector<Plot> plots;
  for (const char* group : {"naive", "mitigation", "preset"}) {
    Plot plot{fmt::format("loss_{}", group),
              fmt::format("Loss of {} variants ({})", group, setup(study)),
              {"step"},
              {"loss, nats"},
              {}};
    // Curves of losses lie on each other; their gaps do not.
    Plot gaps{fmt::format("gap_{}", group),
              fmt::format("Loss of {} variants above {} ({})", group, study.variants[0].name,
                          setup(study)),
              {"step"},
              {"gap, nats"},
              {}};
    for (std::size_t v = 0; v < study.variants.size(); ++v) {
      if (v == 0 || study.variants[v].group == group) plot.series.push_back(curve(study, v));
      if (v != 0 && study.variants[v].group == group) gaps.series.push_back(gap_curve(study, v));
    }
    if (gaps.series.empty()) continue;
    plots.push_back(std::move(gaps));
    plots.push_back(std::move(plot));
  }
  return plots;
}

Table ladder_table(const Study& study, const std::vector<Summary>& summaries) {
  Table table("ladders", fmt::format("Each failure from mild to severe ({})", setup(study)),
              {{"ladder", "", "what is varied"},
               {"setting", "", "what the value is"},
               {"value", "1", "the value"},
               {"gap", "nats", "tail loss above the reference's, mean over seeds"},
               {"gap_spread", "nats", kSpreadMeaning},
               {"gradient_zero", "%", "gradient elements that the cast made zero"},
               {"activation_zero", "%", "activation elements that the cast made zero"},
               {"verdict", "", "of the worst seed: follows, stalls or diverges"}});
  for (std::size_t i = 0; i < study.ladder.size(); ++i) {
    const Summary& s = summaries[study.variants.size() + i];
    table.add_row({study.ladder[i].ladder, study.ladder[i].what, study.ladder[i].value, s.gap.mean,
                   s.gap.half_width, s.gradient_zero.mean, s.activation_zero.mean,
                   to_string(worst(s.outcomes))});
  }
  return table;
}

/// One sentence for each ladder: where it stops following.
std::vector<std::string> ladder_findings(const Study& study,
                                         const std::vector<Summary>& summaries) {
  std::vector<std::string> findings;
  for (std::size_t begin = 0, end = 0; begin < study.ladder.size(); begin = end) {
    while (end < study.ladder.size() && study.ladder[end].ladder == study.ladder[begin].ladder)
      ++end;
    std::string follows;
    std::string fails;
    std::string mixed;
    for (std::size_t i = begin; i < end; ++i) {
      const Summary& summary = summaries[study.variants.size() + i];
      const auto outcome = agreed(summary, study.seeds);
      std::string& list = !outcome ? mixed : *outcome == Outcome::follows ? follows : fails;
      append(list, fmt::format("{:g}", study.ladder[i].value), summary);
    }
    findings.push_back(fmt::format(
        "{} ({}, gap in nats): follows at {}; fails at {}{}.", study.ladder[begin].ladder,
        study.ladder[begin].what, follows.empty() ? "none" : follows,
        fails.empty() ? "none" : fails, mixed.empty() ? "" : "; seeds disagree at " + mixed));
  }
  return findings;
}

std::vector<std::string> verdict_findings(const Study& study,
                                          const std::vector<Summary>& summaries) {
  NamedOutcomes outcomes;
  for (std::size_t i = 1; i < study.variants.size(); ++i)
    outcomes.add(study.variants[i].name, agreed(summaries[i], study.seeds));
  std::vector<std::string> findings{fmt::format(
      "{} ({}).", sentence_of(outcomes, "recipes", study.variants[0].name), setup(study))};
  for (const std::optional<Outcome> outcome :
       {std::optional(Outcome::follows), std::optional(Outcome::stalls),
        std::optional(Outcome::diverges), std::optional<Outcome>()}) {
    std::string list;
    for (std::size_t i = 1; i < study.variants.size(); ++i)
      if (agreed(summaries[i], study.seeds) == outcome)
        append(list, study.variants[i].name, summaries[i]);
    if (!list.empty())
      findings.push_back(fmt::format("{} (gap to {} in nats, {}; {}): {}.",
                                     outcome ? to_string(*outcome) : "cannot tell, seeds disagree",
                                     study.variants[0].name, setup(study), kIntervalMeaning, list));
  }
  const bool outliers = std::any_of(study.variants.begin(), study.variants.end(),
                                    [](const Variant& v) { return v.outliers; });
  if (outliers)
    findings.push_back(fmt::format(
        "+outliers: {} of {} feature channels after each norm are scaled by 2^{}, "
        "their weights by the inverse; small models do not develop outliers by themselves.",
        study.settings.outliers.count, study.settings.shape.width,
        study.settings.outliers.log2_magnitude));
  return findings;
}

}  // namespace

Results train(const RunContext& context) {
  Study study = read_study(context.parameters, context.seed);
  study.settings.backend = context.backend;
  parallel_points(context, study.points.size(), [&](std::size_t i) {
    Point& p = study.points[i];
    p.run = train_variant(study.settings, p.variant, p.outliers, p.seed);
  });
  std::vector<Summary> summaries;
  for (std::size_t row = 0; row < study.rows(); ++row) summaries.push_back(summarize(study, row));
  Results results;
  results.tables = {verdict_table(study, summaries), repeat_table(study), curve_table(study)};
  results.plots = curve_plots(study);
  results.findings = verdict_findings(study, summaries);
  if (!study.ladder.empty()) {
    results.tables.push_back(ladder_table(study, summaries));
    for (std::string& finding : ladder_findings(study, summaries))
      results.findings.push_back(std::move(finding));
  }
  return results;
}

}  // namespace fp8lab::experiments
