#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "long-sums/readout.hpp"
#include "train/settings.hpp"
#include "train/standing.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<std::int64_t> features;
  std::vector<double> offsets;
  std::int64_t classes = 0;
  ReadoutSettings readout;
  std::size_t seeds = 0;
  double tail_share = 0.0;
  double follow = 0.0;
  std::string bf16_accumulator;

  static constexpr auto fields() {
    using train::Schedule;
    return std::tuple{
        field("features", &Settings::features),
        field("offsets", &Settings::offsets),
        field("classes", &Settings::classes),
        group(&Settings::readout, field("inputs", &ReadoutSettings::inputs),
              field("bias", &ReadoutSettings::bias), field("batch", &ReadoutSettings::batch),
              group(&ReadoutSettings::schedule, field("steps", &Schedule::steps),
                    field("warmup", &Schedule::warmup), field("learning_rate", &Schedule::peak))),
        field("seeds", &Settings::seeds),
        field("tail_share", &Settings::tail_share),
        field("follow", &Settings::follow),
        field("bf16_accumulator", &Settings::bf16_accumulator, bf16_accumulator_of)};
  }
};

/// BF16, the control, and FP8 that differs in the promotion alone.
struct Way {
  const char* name;
  train::LinearRecipe recipe;
};

std::vector<Way> ways(const Settings& settings) {
  const Recipe e4m3{.format = FormatId::e4m3fn};
  train::LinearRecipe bf16 = train::bf16_recipe();
  train::set_bf16_accumulator(bf16, settings.bf16_accumulator);
  return {{"bf16", bf16},
          {"fp32", train::fp32_recipe()},
          {"no promotion", train::fp8_recipe("no-promotion", e4m3, e4m3, e4m3, 0)},
          {"promoted", train::fp8_recipe("promoted", e4m3, e4m3, e4m3, 128)}};
}

struct Study {
  Settings settings;
  std::vector<Way> ways;
  std::vector<ReadoutTask> tasks;
  std::vector<std::vector<double>> losses;  ///< tasks x ways x seeds, step by step

  [[nodiscard]] const std::vector<double>& run(std::size_t task, std::size_t way,
                                               std::size_t seed) const {
    return losses[(task * ways.size() + way) * settings.seeds + seed];
  }
  [[nodiscard]] double tail(std::size_t task, std::size_t way, std::size_t seed) const {
    const std::vector<double>& all = run(task, way, seed);
    const auto length = std::max<std::ptrdiff_t>(
        1, static_cast<std::ptrdiff_t>(settings.tail_share * static_cast<double>(all.size())));
    const std::vector<double> last(all.end() - length, all.end());
    return spread_of(last).mean;
  }
  /// Over seeds, as logarithms.
  [[nodiscard]] std::vector<double> logarithms(std::size_t task, std::size_t way) const {
    std::vector<double> all;
    for (std::size_t s = 0; s < settings.seeds; ++s) all.push_back(std::log(tail(task, way, s)));
    return all;
  }
  [[nodiscard]] std::vector<double> ratios(std::size_t task, std::size_t way) const {
    std::vector<double> all;
    for (std::size_t s = 0; s < settings.seeds; ++s)
      all.push_back(tail(task, way, s) / tail(task, 0, s));
    return all;
  }
  [[nodiscard]] Judgement judgement(std::size_t task, std::size_t way) const {
    return judge_seeds(logarithms(task, way), logarithms(task, 0), logarithms(task, 1),
                       settings.follow);
  }
};

std::string name_of(const ReadoutTask& task) {
  return task.classes > 0 ? fmt::format("{} classes", task.classes)
                          : fmt::format("values around {:g}", task.offset);
}

std::vector<ReadoutTask> make_tasks(const Settings& s) {
  std::vector<ReadoutTask> tasks;
  for (const double offset : s.offsets)
    for (const std::int64_t k : s.features) tasks.push_back({k, 0, offset});
  if (s.classes > 0)
    for (const std::int64_t k : s.features) tasks.push_back({k, s.classes, 0.0});
  return tasks;
}

std::string setup(const Study& study) {
  const ReadoutSettings& r = study.settings.readout;
  return fmt::format("sm90.wgmma.e4m3, {} steps of {} rows, {} seeds", r.schedule.steps, r.batch,
                     study.settings.seeds);
}

Table run_table(const Study& study) {
  Table table("runs", fmt::format("Loss under FP8 over that under BF16 ({})", setup(study)),
              {{"task", "", "what the readout learns"},
               {"k", "1", "features: terms of each sum"},
               {"way", "", "sums of FP8 products without promotion, or promoted every 128 terms"},
               {"ratio", "1", "loss of the last steps over BF16's, mean over seeds"},
               {"ratio_min", "1", "smallest"},
               {"ratio_max", "1", "largest"},
               {"band", "1", "a ratio above this is not noise: from the spread of FP32"},
               {"standing", "", kStandings}});
  for (std::size_t t = 0; t < study.tasks.size(); ++t)
    for (std::size_t w = 2; w < study.ways.size(); ++w) {
      const Spread ratio = spread_of(study.ratios(t, w));
      const Judgement j = study.judgement(t, w);
      table.add_row({name_of(study.tasks[t]), study.tasks[t].features,
                     std::string(study.ways[w].name), ratio.mean, ratio.min, ratio.max,
                     std::exp(j.band), std::string(to_string(j.standing))});
    }
  return table;
}

Table repeat_table(const Study& study) {
  Table table("repeats", "Each run",
              {{"task", "", "what the readout learns"},
               {"k", "1", "features: terms of each sum"},
               {"way", "", "bf16: the reference, fp32: the control"},
               {"seed", "1", "of weights and data, from the first"},
               {"loss", "1", "squared error (values) or nats (classes), mean of the last steps"}});
  for (std::size_t t = 0; t < study.tasks.size(); ++t)
    for (std::size_t w = 0; w < study.ways.size(); ++w)
      for (std::size_t s = 0; s < study.settings.seeds; ++s)
        table.add_row({name_of(study.tasks[t]), study.tasks[t].features,
                       std::string(study.ways[w].name), static_cast<std::int64_t>(s),
                       study.tail(t, w, s)});
  return table;
}

Plot ratio_plot(const Study& study) {
  Plot plot{"loss_against_k",
            fmt::format("Loss above BF16's with K terms in every sum ({})", setup(study)),
            {"K", true, 2},
            {"loss over BF16's", true},
            {}};
  struct Place {
    std::size_t task;
    std::size_t way;
  };
  std::vector<Place> places;
  for (std::size_t w = 2; w < study.ways.size(); ++w)
    for (std::size_t t = 0; t < study.tasks.size(); ++t) places.push_back({t, w});
  plot.series = series_by(
      places,
      [&](const Place& p) {
        return fmt::format("{}, {}", name_of(study.tasks[p.task]), study.ways[p.way].name);
      },
      [&](const Place& p) {
        const Spread ratio = spread_of(study.ratios(p.task, p.way));
        return std::tuple(static_cast<double>(study.tasks[p.task].features), ratio.mean, ratio.min,
                          ratio.max);
      },
      [](const Place& p) {
        return p.way == 2 ? Series::Style::lines_points : Series::Style::dashed;
      });
  share_colours(plot.series, study.ways[3].name, study.ways[2].name);
  return plot;
}

std::vector<std::string> findings_of(const Study& study) {
  std::vector<std::string> findings;
  for (std::size_t t = 0; t < study.tasks.size(); ++t) {
    const auto text = [&](std::size_t way) {
      return fmt::format("{} ({})", log_interval_text(study.ratios(t, way)),
                         to_string(study.judgement(t, way).standing));
    };
    findings.push_back(fmt::format(
        "{}, K = {}: the loss is {} times BF16's without promotion, and {} times with promotion "
        "every 128 terms ({}; {}).",
        name_of(study.tasks[t]), study.tasks[t].features, text(2), text(3), setup(study),
        kLogIntervalMeaning));
  }
  findings.push_back(
      "leaves or follows: the logarithm of the ratio is above the band in every seed, or within "
      "it; "
      "the band holds 99 % of those of FP32 products, and is at least three standard deviations "
      "and at least follow, a parameter.");
  return findings;
}

}  // namespace

Results long_sums(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  Study study{settings, ways(settings), make_tasks(settings), {}};
  study.losses.resize(study.tasks.size() * study.ways.size() * settings.seeds);
  parallel_points(context, study.losses.size(), [&](std::size_t i) {
    const std::size_t row = i / settings.seeds;
    study.losses[i] = train_readout(settings.readout, study.tasks[row / study.ways.size()],
                                    study.ways[row % study.ways.size()].recipe,
                                    context.seed + i % settings.seeds, context.backend);
  });
  return {.tables = {run_table(study), repeat_table(study)},
          .plots = {ratio_plot(study)},
          .heat_maps = {},
          .findings = findings_of(study)};
}

}  // namespace fp8lab::experiments
