#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "failure-ladder/modes.hpp"
#include "train/settings.hpp"
#include "train/standing.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  StudySettings study;
  RungSettings rungs;
  std::size_t seeds = 0;

  static constexpr auto fields() {
    return std::tuple{group(&Settings::study, study_fields()), group(&Settings::rungs),
                      field("seeds", &Settings::seeds)};
  }
};

struct Study {
  StudySettings settings;
  std::vector<Rung> rungs;
  std::size_t seeds = 0;
  std::vector<TrainingRun> runs;  ///< bf16, fp32, then each rung failing and mended; x seeds

  [[nodiscard]] std::vector<double> tails(std::size_t row) const {
    std::vector<double> all;
    for (std::size_t s = 0; s < seeds; ++s)
      all.push_back(tail_loss(settings, runs[row * seeds + s].losses));
    return all;
  }
  [[nodiscard]] Judgement judged(std::size_t row) const {
    std::vector<bool> bad;
    for (std::size_t s = 0; s < seeds; ++s)
      bad.push_back(diverged(settings, runs[row * seeds + s].losses, runs[s].losses));
    return judge_seeds(tails(row), tails(0), tails(1), settings.follow_nats, bad);
  }
  [[nodiscard]] Judgement failing(std::size_t rung) const { return judged(2 + 2 * rung); }
  [[nodiscard]] Judgement mended(std::size_t rung) const { return judged(3 + 2 * rung); }
  /// A failure that shows and goes.
  [[nodiscard]] bool shown(std::size_t rung) const {
    return failing(rung).standing == Standing::leaves && mended(rung).standing == Standing::follows;
  }
};

std::string setup(const Study& study) {
  return fmt::format("{}, {} seeds", describe_setup(study.settings, study.runs.front().parameters),
                     study.seeds);
}

Table rung_table(const Study& study) {
  Table table("rungs", fmt::format("Each failure alone, against BF16 ({})", setup(study)),
              {{"mode", "", "which failure"},
               {"what", "", "what value is"},
               {"value", "1", "from mild to severe"},
               {"mitigation", "", "the single change"},
               {"diverged", "seeds", kDivergedMeaning},
               {"gap", "nats", "tail loss above BF16's, mean over the other seeds"},
               {"gap_min", "nats", "smallest"},
               {"gap_max", "nats", "largest"},
               {"standing", "", kStandings},
               {"mended_diverged", "seeds", "the same with the mitigation"},
               {"mended_gap", "nats", "the same with the mitigation"},
               {"mended_gap_min", "nats", "smallest"},
               {"mended_gap_max", "nats", "largest"},
               {"mended_standing", "", kStandings},
               {"band", "nats", "a gap above this is not noise: from the spread of FP32"}});
  for (std::size_t i = 0; i < study.rungs.size(); ++i) {
    const Rung& rung = study.rungs[i];
    const Judgement bad = study.failing(i);
    const Judgement good = study.mended(i);
    table.add_row({rung.mode, rung.what, rung.value, rung.mitigation,
                   static_cast<std::int64_t>(bad.diverged), bad.mean, bad.min, bad.max,
                   std::string(to_string(bad.standing)), static_cast<std::int64_t>(good.diverged),
                   good.mean, good.min, good.max, std::string(to_string(good.standing)), bad.band});
  }
  return table;
}

Table repeat_table(const Study& study) {
  Table table("repeats", "Each run",
              {{"mode", "", "bf16: the reference, fp32: the control"},
               {"value", "1", "as in rungs"},
               {"mended", "", "with the mitigation"},
               {"seed", "1", "of weights and data, from the first"},
               {"loss", "nats", "mean of the last steps; nan: it broke off"}});
  for (std::size_t row = 0; row < 2 + 2 * study.rungs.size(); ++row) {
    const std::vector<double> tails = study.tails(row);
    for (std::size_t s = 0; s < study.seeds; ++s)
      table.add_row(
          {row < 2 ? std::string(row == 0 ? "bf16" : "fp32") : study.rungs[row / 2 - 1].mode,
           row < 2 ? 0.0 : study.rungs[row / 2 - 1].value, row > 1 && row % 2 == 1,
           static_cast<std::int64_t>(s), tails[s]});
  }
  return table;
}

/// Which modes make a run leave the reference and return with their mitigation.
std::string answer_of(const Study& study) {
  std::vector<std::string> shown;
  std::vector<std::string> others;
  for (std::size_t begin = 0, end = 0; begin < study.rungs.size(); begin = end) {
    bool any = false;
    for (; end < study.rungs.size() && study.rungs[end].mode == study.rungs[begin].mode; ++end)
      any = any || study.shown(end);
    (any ? shown : others).push_back(study.rungs[begin].mode);
  }
  if (shown.empty())
    return fmt::format(
        "No failure mode that was tried ({}) alone makes a run leave the loss curve of BF16 and "
        "return with its mitigation ({}).",
        in_words(others), setup(study));
  return fmt::format(
      "Alone, {} of {} failure modes {} a run leave the loss curve of BF16 and return with the "
      "mitigation ({}){} ({}).",
      shown.size(), shown.size() + others.size(), shown.size() == 1 ? "makes" : "make",
      in_words(shown),
      others.empty() ? ""
                     : fmt::format("; not so {}, at no value that was tried", in_words(others)),
      setup(study));
}

/// One sentence a mode: the mildest rung at which it shows and goes.
std::vector<std::string> findings_of(const Study& study) {
  std::vector<std::string> findings{answer_of(study)};
  for (std::size_t begin = 0, end = 0; begin < study.rungs.size(); begin = end) {
    const std::string& mode = study.rungs[begin].mode;
    std::string all;
    std::string first;
    for (; end < study.rungs.size() && study.rungs[end].mode == mode; ++end) {
      const Rung& rung = study.rungs[end];
      const std::string one =
          fmt::format("{:g}: {}, with {} {}", rung.value, text_of(study.failing(end)),
                      rung.mitigation, text_of(study.mended(end)));
      if (first.empty() && study.shown(end)) first = fmt::format("{:g}", rung.value);
      all += (all.empty() ? "" : "; ") + one;
    }
    findings.push_back(fmt::format(
        "{} ({}): {} {}.", mode, study.rungs[begin].what,
        first.empty() ? "at no rung does it leave the BF16 curve and return."
                      : fmt::format("it leaves the BF16 curve and returns, mildest at {}.", first),
        all));
  }
  findings.push_back(fmt::format("{} ({}).", kBandMeaning, setup(study)));
  return findings;
}

}  // namespace

Results failure_ladder(const RunContext& context) {
  const auto p = read_parameters<Settings>(context.parameters);
  Study study{.settings = p.study, .rungs = find_rungs(p.rungs), .seeds = p.seeds, .runs = {}};
  study.settings.backend = context.backend;
  study.runs.resize((2 + 2 * study.rungs.size()) * study.seeds);
  parallel_points(context, study.runs.size(), [&](std::size_t i) {
    const std::size_t row = i / study.seeds;
    const std::uint64_t seed = context.seed + i % study.seeds;
    if (row < 2) {
      study.runs[i] =
          train_variant(study.settings, find_variant(row == 0 ? "bf16" : "fp32"), {}, seed);
      return;
    }
    const Rung& rung = study.rungs[row / 2 - 1];
    study.runs[i] = train_variant(study.settings, row % 2 == 0 ? rung.failing : rung.mended,
                                  rung.outliers, seed);
  });
  return {.tables = {rung_table(study), repeat_table(study)},
          .plots = {},
          .heat_maps = {},
          .findings = findings_of(study)};
}

}  // namespace fp8lab::experiments
