// A5 and T1 to T5: what happens to small training runs. The same weights and batches in
// every run of a claim; small models may hold where large ones do not.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "claims/groups.hpp"
#include "common/parallel.hpp"
#include "leading-indicators/faults.hpp"
#include "leading-indicators/indicators.hpp"
#include "optimizer-precision/rows.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view kTutorial = "naive-FP8 tutorial";

/// A transformer of 53 440 parameters, 64 tokens a step, that learns within `steps`.
StudySettings small_study(std::int64_t steps) {
  StudySettings s;
  s.shape = {.vocabulary = 128, .length = 32, .width = 64, .layers = 1, .heads = 2, .hidden = 96};
  s.sequences = 2;
  s.schedule = {.peak = 3e-3, .warmup = steps / 10, .steps = steps};
  return s;
}

/// Calls run(i) for i below `count` on the claim's threads.
template <typename Run>
void run_all(const ClaimContext& context, std::size_t count, Run run) {
  RunContext points;
  points.threads = context.threads;
  parallel_points(points, count, run);
}

/// A gap for people: of a run that broke off there is none.
std::string gap_text(double gap) {
  return std::isfinite(gap) ? fmt::format("{:+.3f}", gap) : std::string("broke off");
}

void add_gap(Measurement& m, const std::string& name, double gap) {
  if (std::isfinite(gap)) m.values.push_back({name, "nats", gap});
}

struct StatesRun {
  const char* row;
  std::vector<double> losses;
};

Measurement measure_a5(const ClaimContext& context) {
  const StudySettings settings = small_study(120);
  std::vector<StatesRun> runs{{"bf16", {}},
                              {"fp8-lm", {}},
                              {"fp8-lm-fp8-v", {}},
                              {"fp8-lm-fp8-master", {}},
                              {"fp8-lm-unscaled", {}},
                              {"fp8-lm-fp8-v-unscaled", {}},
                              {"fp8-lm-fp8-master-unscaled", {}}};
  run_all(context, runs.size(), [&](std::size_t i) {
    const OptimizerRow row = find_optimizer_row(runs[i].row);
    StudySettings with_states = settings;
    with_states.optimizer = row.states;
    runs[i].losses = train_variant(with_states, row.variant, {}, context.seed).losses;
  });
  Measurement m;
  std::vector<Outcome> outcomes;
  const double reference = tail_loss(settings, runs[0].losses);
  for (const StatesRun& run : runs) {
    outcomes.push_back(judge(settings, run.losses, runs[0].losses));
    if (&run == &runs.front()) continue;
    const double gap = tail_loss(settings, run.losses) - reference;
    m.figure += fmt::format("{}{} {} ({})", m.figure.empty() ? "gaps in nats: " : ", ", run.row,
                            to_string(outcomes.back()), gap_text(gap));
    add_gap(m, fmt::format("gap_{}", run.row), gap);
    m.values.push_back({fmt::format("diverged_{}", run.row), "1",
                        outcomes.back() == Outcome::diverges ? 1.0 : 0.0});
  }
  const bool fp16_follows = outcomes[1] == Outcome::follows;
  const bool both_diverge = outcomes[2] == Outcome::diverges && outcomes[3] == Outcome::diverges;
  const bool both_fail = outcomes[2] != Outcome::follows && outcomes[3] != Outcome::follows;
  if (fp16_follows && both_fail)
    m.verdict = both_diverge ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_t1(const ClaimContext& context) {
  const StudySettings settings = small_study(320);
  const Thresholds thresholds{.window = 25, .leave_gap = settings.follow_nats};
  const std::vector<const char*> names{"bf16", "unscaled-e4m3", "unscaled-hybrid", "e5m2-only",
                                       "no-promotion"};
  std::vector<std::vector<StepFigures>> runs(names.size());
  run_all(context, names.size(), [&](std::size_t i) {
    runs[i] = record_run(settings, find_variant(names[i]), {}, context.seed);
  });
  Measurement m;
  bool all_in_time = true;
  bool some_leave = false;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const WatchedRun watched = watch(thresholds, runs[i], runs[0]);
    const double gap = watched.values[2].back();
    const bool diverges =
        runs[i].size() < runs[0].size() || gap > settings.diverge_nats + settings.follow_nats;
    some_leave = some_leave || watched.left.has_value();
    all_in_time =
        all_in_time && diverges && watched.left && *watched.left >= 150 && *watched.left <= 300;
    m.figure += fmt::format("{}{} {}, {} nats at the end", i == 1 ? "" : "; ", names[i],
                            watched.left ? fmt::format("leaves at step {}", *watched.left)
                                         : std::string("does not leave"),
                            gap_text(gap));
    add_gap(m, fmt::format("gap_{}", names[i]), gap);
    m.values.push_back({fmt::format("left_{}", names[i]), "steps",
                        static_cast<double>(watched.left.value_or(-1))});
  }
  if (some_leave) m.verdict = all_in_time ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

/// A failure, and the same with its mitigation.
struct Ablation {
  const char* name;
  LadderStep failure;
  LadderStep mitigated;
};

LadderStep plain_step(const char* variant) { return {"", "", 0.0, find_variant(variant), {}}; }

std::vector<Ablation> ablations() {
  const auto ladder = [](const char* name, double value) {
    return find_ladder(name, {value}, 4).front();
  };
  return {{"scales", plain_step("unscaled-e4m3"), plain_step("fix-scales")},
          {"e5m2_gradients", plain_step("unscaled-e4m3"), plain_step("fix-formats")},
          {"tiles", ladder("outliers", 17.0), ladder("outliers-mx", 17.0)},
          {"promotion", ladder("accumulator", 3.0), ladder("accumulator-promoted", 3.0)}};
}

Measurement measure_t2(const ClaimContext& context) {
  const StudySettings settings = small_study(120);
  const std::vector<Ablation> pairs = ablations();
  std::vector<double> tails(1 + 2 * pairs.size());
  run_all(context, tails.size(), [&](std::size_t i) {
    LadderStep step = plain_step("bf16");
    if (i > 0) step = i % 2 == 1 ? pairs[(i - 1) / 2].failure : pairs[(i - 1) / 2].mitigated;
    tails[i] = tail_loss(settings,
                         train_variant(settings, step.variant, step.outliers, context.seed).losses);
  });
  Measurement m;
  bool all_appear = true;
  bool some_appear = false;
  bool all_removed = true;
  bool all_halved = true;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double failed = tails[2 * i + 1] - tails[0];
    const double fixed = tails[2 * i + 2] - tails[0];
    // A run that broke off has a failure that shows; NaN compares as false.
    const bool appears = !(failed <= settings.follow_nats);
    all_appear = all_appear && appears;
    some_appear = some_appear || appears;
    all_removed = all_removed && fixed <= settings.follow_nats;
    all_halved = all_halved && (!appears || fixed <= settings.follow_nats || fixed <= failed / 2.0);
    m.figure += fmt::format("{}{}: {} to {}{}", i == 0 ? "gaps in nats, without and with " : ", ",
                            pairs[i].name, gap_text(failed), gap_text(fixed),
                            appears ? "" : " (the failure does not show)");
    add_gap(m, fmt::format("without_{}", pairs[i].name), failed);
    add_gap(m, fmt::format("with_{}", pairs[i].name), fixed);
  }
  if (some_appear && all_halved)
    m.verdict = all_appear && all_removed ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_t3(const ClaimContext& context) {
  const StudySettings settings = small_study(160);
  const Thresholds thresholds;
  const std::vector<const char*> names{"bf16", "te-current", "unscaled-e4m3", "fp8-lm-unscaled",
                                       "fp8-lm-fp8-v"};
  std::vector<std::vector<StepFigures>> runs(names.size());
  run_all(context, names.size(), [&](std::size_t i) {
    StudySettings with_states = settings;
    const bool states = i >= 3;
    if (states) with_states.optimizer = find_optimizer_row(names[i]).states;
    runs[i] = record_run(with_states, find_variant(states ? "bf16" : names[i]), {}, context.seed);
  });
  Measurement m;
  bool each_leads = true;
  bool some_leads = true;
  std::size_t left = 0;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const WatchedRun watched = watch(thresholds, runs[i], runs[0]);
    if (watched.left) ++left;
    const std::int64_t end = watched.left.value_or(settings.schedule.steps);
    bool some = false;
    m.figure += fmt::format(
        "{}{} {}: ", i == 1 ? "" : "; ", names[i],
        watched.left ? fmt::format("leaves at step {}", end) : std::string("never leaves"));
    for (const Indicator indicator : kIndicators) {
      const auto alarm = watched.alarms[static_cast<std::size_t>(indicator)];
      const bool leads = alarm && *alarm < end;
      some = some || leads;
      if (watched.left) each_leads = each_leads && leads;
      m.figure += fmt::format("{}{} {}", indicator == Indicator::gradient_amax ? "" : ", ",
                              to_string(indicator),
                              alarm ? fmt::format("at {}", *alarm) : std::string("silent"));
      m.values.push_back({fmt::format("alarm_{}_{}", static_cast<int>(indicator), names[i]),
                          "steps", static_cast<double>(alarm.value_or(-1))});
    }
    if (watched.left) some_leads = some_leads && some;
    m.values.push_back({fmt::format("left_{}", names[i]), "steps",
                        static_cast<double>(watched.left.value_or(-1))});
    // The healthy run: an alarm there is a false one.
    if (i == 1) each_leads = each_leads && !some && !watched.left;
  }
  if (left > 0 && some_leads)
    m.verdict = each_leads ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_t4(const ClaimContext& context) {
  const StudySettings settings = small_study(40);
  const Variant variant = find_variant("te-delayed");
  const Fault fault{FaultKind::transient, 20};
  constexpr std::int64_t kEvery = 5;
  std::vector<FaultyRun> runs(3);
  run_all(context, runs.size(), [&](std::size_t i) {
    runs[i] = run_with_fault(settings, variant, context.seed, i == 0 ? Fault{} : fault,
                             i == 2 ? kEvery : 0);
  });
  const auto finite = [](const FaultyRun& run) {
    return std::count_if(run.losses.begin(), run.losses.end(),
                         [](double loss) { return std::isfinite(loss); });
  };
  const FaultyRun& guarded = runs[2];
  const double steps = static_cast<double>(settings.schedule.steps);
  const double passes = 100.0 * (static_cast<double>(guarded.attempts) / steps - 1.0);
  // AdamW reads and writes its states once a step; a snapshot does it once.
  const double copied = 100.0 * static_cast<double>(guarded.snapshots) / steps;
  const bool recovered = same_weights(guarded, runs[0]);
  Measurement m;
  m.figure = fmt::format(
      "one NaN gradient at step {} of {}: without a guard {} losses are finite, with one {}, and "
      "the weights {} the bits of a run without the NaN; a snapshot of {:.2f} MB every {} steps "
      "copies {:.3g} % of the states a step; {} steps taken again, {:.3g} % more passes over this "
      "short run",
      fault.step, settings.schedule.steps, finite(runs[1]), finite(guarded),
      recovered ? "have" : "do not have", static_cast<double>(guarded.snapshot_bytes) * 1e-6,
      kEvery, copied, guarded.replayed, passes);
  m.values = {{"finite_unguarded", "steps", static_cast<double>(finite(runs[1]))},
              {"finite_guarded", "steps", static_cast<double>(finite(guarded))},
              {"snapshot", "B", static_cast<double>(guarded.snapshot_bytes)},
              {"copied", "%", copied},
              {"replayed", "steps", static_cast<double>(guarded.replayed)},
              {"more_passes", "%", passes}};
  const bool needed = finite(runs[1]) < settings.schedule.steps;
  if (needed && finite(guarded) == settings.schedule.steps)
    m.verdict = recovered && guarded.replayed <= kEvery + 1 && copied < 50.0
                    ? Verdict::holds
                    : Verdict::holds_with_correction;
  return m;
}

std::vector<float> weights_of(train::Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

double different_bits(const std::vector<float>& a, const std::vector<float>& b) {
  double different = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) different += 1.0;
  return different;
}

Measurement measure_t5(const ClaimContext& context) {
  constexpr std::int64_t kSteps = 6;
  const StudySettings settings = small_study(kSteps);
  Measurement m;
  double different = 0.0;
  for (const char* name : {"te-delayed", "te-mxfp8"}) {
    const train::TrainerOptions options =
        trainer_options(settings, find_variant(name), {}, context.seed);
    const auto data = training_data(settings, context.seed);
    train::Trainer one(options, data);
    train::Trainer two(options, data);
    train::Trainer resumed(options, data);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step == kSteps / 2) resumed.restore(one.snapshot());
      (void)one.step({.threads = 1, .on_cast = {}});
      (void)two.step({.threads = 2, .on_cast = {}});
      if (step >= kSteps / 2) (void)resumed.step({});
    }
    const std::vector<float> weights = weights_of(one);
    const double threads = different_bits(weights, weights_of(two));
    const double resume = different_bits(weights, weights_of(resumed));
    different += threads + resume;
    m.figure +=
        fmt::format("{}{}: {} of {} weights differ between 1 and 2 threads, {} after a resume",
                    m.figure.empty() ? "" : "; ", name, threads, weights.size(), resume);
    m.values.push_back({fmt::format("differ_threads_{}", name), "1", threads});
    m.values.push_back({fmt::format("differ_resumed_{}", name), "1", resume});
  }
  if (different > 0.0) m.verdict = Verdict::holds;
  return m;
}

}  // namespace

std::vector<Claim> training_claims() {
  return {
      {"A5", "FP8-LM summary", "v in FP8 diverges, v in FP16 does not; FP8 master weights diverge",
       "rows of FP8-LM's Table 6 on a transformer of 53440 parameters, BF16 GEMMs, 120 steps of 64 "
       "tokens, with tensor scales and without",
       "holds if with tensor scales FP16 states end within 0.02 nats of FP32 AdamW and both FP8 v "
       "and FP8 master diverge; with a correction if both end above 0.02 nats",
       measure_a5},
      {"T1", kTutorial, "naive FP8 training leaves the BF16 curve after 150 to 300 steps",
       "53440 parameters, 320 steps of 64 tokens, four naive variants; leaving is a mean gap over "
       "25 "
       "steps that stays above 0.02 nats",
       "holds if every naive variant leaves within those steps and ends 0.22 nats above; with a "
       "correction if some variant leaves at any step",
       measure_t1},
      {"T2", kTutorial, "each mitigation removes its own failure",
       "53440 parameters, 120 steps; scales and E5M2 gradients against unscaled E4M3, tiles of 32 "
       "against outlier channels set up at 2^17, promotion against an accumulator cut to 3 "
       "fraction bits",
       "holds if each of the four failures costs more than 0.02 nats and each mitigation brings it "
       "below; with a correction if every failure that shows loses at least half of its gap",
       measure_t2},
      {"T3", kTutorial,
       "gradient amax ratio, second-moment ratio and 0.01 nats of loss show trouble before the "
       "loss "
       "leaves",
       "a BF16 shadow on the same batches, 160 steps; alarms at a factor of 2 or 0.01 nats over 10 "
       "steps, 5 in a row; leaving is 0.1 nats for good",
       "holds if in each run that leaves each indicator comes first and a healthy run raises none; "
       "with a correction if at least one indicator comes first in each",
       measure_t3},
      {"T4", kTutorial, "a NaN guard that rolls the optimizer back is cheap insurance",
       "te-delayed, 40 steps, one NaN gradient, a snapshot every 5 steps; costs are counted, not "
       "timed",
       "holds if the NaN ends the unguarded run, and the guarded one ends with the bits of a run "
       "without it after at most 6 steps taken again, at less than half of the states copied a "
       "step; "
       "with a correction if it only stays finite",
       measure_t4},
      {"T5", kTutorial, "FP8 training cannot be made bit-exact reproducible",
       "two recipes, 6 steps on 1 and 2 threads, and resumed halfway from a snapshot",
       "holds if any weight differs in any bit", measure_t5},
  };
}

}  // namespace fp8lab::experiments
