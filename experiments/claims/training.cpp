// T3 to T5: what happens to small training runs. The same weights and batches in
// every run of a claim; small models may hold where large ones do not.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "claims/groups.hpp"
#include "claims/small_runs.hpp"
#include "leading-indicators/faults.hpp"
#include "leading-indicators/indicators.hpp"
#include "optimizer-precision/rows.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<const char*, 5> kWatched{"bf16", "te-current", "unscaled-e4m3",
                                              "fp8-lm-unscaled", "fp8-lm-fp8-v"};
constexpr std::size_t kWatchedSeeds = 2;

/// The third indicator, 0.01 nats of loss, comes before 0.1 by construction and does not count.
Verdict judge_t3(Values values) {
  const double left = value_of(values, "left");
  if (left == 0.0) return Verdict::cannot_tell;
  const double gradient = value_of(values, "gradient_leads");
  const double moment = value_of(values, "moment_leads");
  const bool silent = value_of(values, "false_alarms") == 0.0;
  if (gradient == left && moment == left && silent) return Verdict::holds;
  return value_of(values, "one_leads") == left ? Verdict::holds_with_correction
                                               : Verdict::does_not_hold;
}

Measurement measure_t3(const ClaimContext& context) {
  const StudySettings settings = small_study(context, 160);
  const KillThresholds thresholds;
  std::vector<std::vector<StepFigures>> runs(kWatched.size() * kWatchedSeeds);
  run_all(context, runs.size(), [&](std::size_t i) {
    StudySettings with_states = settings;
    const char* name = kWatched[i / kWatchedSeeds];
    const bool states = i / kWatchedSeeds >= 3;
    if (states) with_states.optimizer = find_optimizer_row(name).states;
    runs[i] = record_run(with_states, find_variant(states ? "bf16" : name), {},
                         context.seed + i % kWatchedSeeds);
  });
  Measurement m;
  double left = 0.0;
  std::array<double, 2> leads{};
  double one_leads = 0.0;
  double false_alarms = 0.0;
  for (std::size_t i = kWatchedSeeds; i < runs.size(); ++i) {
    const WatchedRun watched = watch(thresholds, runs[i], runs[i % kWatchedSeeds]);
    const std::int64_t end = watched.left.value_or(settings.schedule.steps);
    bool some = false;
    m.figure += fmt::format(
        "{}{} {}: ", i == kWatchedSeeds ? "" : "; ", kWatched[i / kWatchedSeeds],
        watched.left ? fmt::format("leaves at step {}", end) : std::string("never leaves"));
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      const auto alarm = watched.alarms[k];
      some = some || (alarm && *alarm < end);
      if (watched.left && alarm && *alarm < end) leads[k] += 1.0;
      m.figure += fmt::format("{}{} {}", k == 0 ? "" : ", ", to_string(kIndicators[k]),
                              alarm ? fmt::format("at {}", *alarm) : std::string("silent"));
    }
    if (watched.left) {
      left += 1.0;
      if (some) one_leads += 1.0;
    } else if (i / kWatchedSeeds == 1 && some) {
      false_alarms += 1.0;  // the healthy run
    }
  }
  m.values = {{"left", "runs", left},
              {"gradient_leads", "runs", leads[0]},
              {"moment_leads", "runs", leads[1]},
              {"one_leads", "runs", one_leads},
              {"false_alarms", "runs", false_alarms}};
  return m;
}

Measurement measure_t4(const ClaimContext& context) {
  const StudySettings settings = small_study(context, 40);
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
      "copies {:.3g} % of the states per step; {} steps repeated, {:.3g} % more passes over this "
      "short run",
      fault.step, settings.schedule.steps, finite(runs[1]), finite(guarded),
      recovered ? "have" : "do not have", static_cast<double>(guarded.snapshot_bytes) * 1e-6,
      kEvery, copied, guarded.replayed, passes);
  m.values = {{"steps", "steps", steps},
              {"same_weights", "1", recovered ? 1.0 : 0.0},
              {"finite_unguarded", "steps", static_cast<double>(finite(runs[1]))},
              {"finite_guarded", "steps", static_cast<double>(finite(guarded))},
              {"snapshot", "B", static_cast<double>(guarded.snapshot_bytes)},
              {"copied", "%", copied},
              {"replayed", "steps", static_cast<double>(guarded.replayed)},
              {"more_passes", "%", passes}};
  return m;
}

Verdict judge_t4(Values values) {
  const double steps = value_of(values, "steps");
  const bool needed = value_of(values, "finite_unguarded") < steps;
  if (!needed || value_of(values, "finite_guarded") != steps) return Verdict::does_not_hold;
  const bool cheap = value_of(values, "replayed") <= 6.0 && value_of(values, "copied") < 50.0;
  return cheap && value_of(values, "same_weights") != 0.0 ? Verdict::holds
                                                          : Verdict::holds_with_correction;
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

Verdict judge_t5(Values values) {
  const bool differs = std::any_of(values.begin(), values.end(),
                                   [](const MeasuredValue& v) { return v.value > 0.0; });
  return differs ? Verdict::holds : Verdict::cannot_tell;
}

Measurement measure_t5(const ClaimContext& context) {
  constexpr std::int64_t kSteps = 6;
  const StudySettings settings = small_study(context, kSteps);
  Measurement m;
  for (const char* name : {"te-delayed", "te-mxfp8"}) {
    const train::TrainerOptions options =
        trainer_options(settings, find_variant(name), {}, context.seed);
    const auto data = training_data(settings, context.seed);
    train::Trainer one(options, data);
    train::Trainer two(options, data);
    train::Trainer resumed(options, data);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step == kSteps / 2) resumed.restore(one.snapshot());
      (void)one.step(pass_context(settings));
      (void)two.step(pass_context(settings, 2));
      if (step >= kSteps / 2) (void)resumed.step(pass_context(settings));
    }
    const std::vector<float> weights = weights_of(one);
    const double threads = different_bits(weights, weights_of(two));
    const double resume = different_bits(weights, weights_of(resumed));
    m.figure +=
        fmt::format("{}{}: {} of {} weights differ between 1 and 2 threads, {} after a resume",
                    m.figure.empty() ? "" : "; ", name, threads, weights.size(), resume);
    m.values.push_back({fmt::format("differ_threads_{}", name), "1", threads});
    m.values.push_back({fmt::format("differ_resumed_{}", name), "1", resume});
  }
  return m;
}

}  // namespace

std::vector<Claim> training_claims() {
  return {
      {"T3", kTutorial,
       "the ratios of gradient amax and of second moment show a failure before the loss leaves",
       "a BF16 shadow on the same batches, 160 steps, 2 seeds, one healthy and three failing runs; "
       "alarms at a factor of 2 over 10 steps, 5 in a row; a run leaves when it stays 0.1 nats "
       "above. The third indicator of the claim, 0.01 nats of loss, comes before 0.1 by "
       "construction and is not counted",
       "holds if in each run that leaves both come first and no healthy run raises one; with a "
       "correction if one of the two comes first in each; does not hold if in some run neither "
       "does; "
       "cannot tell if none leaves",
       measure_t3, judge_t3},
      {"T4", kTutorial, "a NaN guard that rolls the optimizer back is cheap insurance",
       "te-delayed, 40 steps, one NaN gradient, a snapshot every 5 steps; costs are counted, not "
       "timed",
       "holds if the NaN ends the unguarded run, and the guarded run ends with the bits of a run "
       "without it after at most 6 repeated steps, copying less than half of the states per step; "
       "with a correction if it only stays finite",
       measure_t4, judge_t4},
      {"T5", kTutorial,
       "FP8 training cannot be made bit-exact reproducible: the part of it that is arithmetic",
       "two recipes, 6 steps in the emulator on 1 and 2 threads, and resumed halfway from a "
       "snapshot: sums in a fixed order. Whether a GPU's kernels keep an order (atomics, a "
       "library's "
       "choice of algorithm) is not measured",
       "holds if any weight differs in any bit; cannot tell if none does, since then "
       "reproducibility "
       "is left to the kernels of a GPU, which an emulator does not run",
       measure_t5, judge_t5},
  };
}

}  // namespace fp8lab::experiments
