// F3a and T8: figures of the tensors that a training run casts, step by step.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "claims/groups.hpp"
#include "claims/small_runs.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {
namespace {

using CastFigure = double (*)(const FloatMatrix& x);

/// `figure` of the tensors whose cast is named `...role`, step by step.
struct WatchedCasts {
  std::vector<std::vector<double>> steps;

  [[nodiscard]] double largest(std::size_t first, std::size_t last) const {
    double most = 0.0;
    for (std::size_t step = first; step < last; ++step)
      for (const double value : steps[step]) most = std::max(most, value);
    return most;
  }
};

WatchedCasts watch_casts(const StudySettings& settings, const char* variant, std::uint64_t seed,
                         std::string_view role, CastFigure figure) {
  train::Trainer trainer(trainer_options(settings, find_variant(variant), {}, seed),
                         training_data(settings, seed));
  WatchedCasts watched;
  train::PassContext pass = pass_context(settings);
  pass.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor&) {
    if (name.ends_with(role)) watched.steps.back().push_back(figure(x));
  };
  while (trainer.steps_done() < settings.schedule.steps) {
    watched.steps.emplace_back();
    (void)trainer.step(pass);
  }
  return watched;
}

double amax_of(const FloatMatrix& x) { return static_cast<double>(amax(x.values, false)); }

constexpr double kMostE4m3 = 448.0;
constexpr double kLossScale = 65536.0;

/// The share of the steps in which some amax exceeds 448 once multiplied by `factor`.
double share_above(std::span<const WatchedCasts> runs, double factor) {
  double above = 0.0;
  double all = 0.0;
  for (const WatchedCasts& run : runs)
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
      above += run.largest(step, step + 1) * factor > kMostE4m3 ? 1.0 : 0.0;
      all += 1.0;
    }
  return above / all;
}

double largest_of(std::span<const WatchedCasts> runs) {
  double most = 0.0;
  for (const WatchedCasts& run : runs) most = std::max(most, run.largest(0, run.steps.size()));
  return most;
}

Measurement measure_f3a(const ClaimContext& context) {
  const StudySettings settings = small_study(context, 160);
  constexpr std::size_t kRunSeeds = 3;
  std::array<WatchedCasts, 2 * kRunSeeds> runs;
  run_all(context, runs.size(), [&](std::size_t i) {
    runs[i] = watch_casts(settings, i < kRunSeeds ? "te-current" : "unscaled-e4m3",
                          context.seed + i % kRunSeeds, ".gradient", amax_of);
  });
  const std::span<const WatchedCasts> healthy(runs.data(), kRunSeeds);
  const std::span<const WatchedCasts> failing(runs.data() + kRunSeeds, kRunSeeds);
  const auto tokens = static_cast<double>(settings.sequences * settings.shape.length);
  Measurement m;
  m.values = {{"largest_amax", "1", largest_of(healthy)},
              {"largest_amax_failing", "1", largest_of(failing)},
              {"share_above", "1", share_above(healthy, 1.0)},
              {"share_above_failing", "1", share_above(failing, 1.0)},
              {"share_above_summed", "1", share_above(healthy, tokens)},
              {"share_above_loss_scale", "1", share_above(healthy, kLossScale)}};
  m.figure = fmt::format(
      "the largest amax of an output gradient is {:.3g} in healthy runs and {:.3g} in runs that "
      "fail; healthy runs have one above 448 in {:.3g} % of their steps, as gradients of a sum "
      "over "
      "the {:g} tokens in {:.3g} %, under a loss scale of {:g} in {:.3g} %",
      m.values[0].value, m.values[1].value, 100.0 * m.values[2].value, tokens,
      100.0 * m.values[4].value, kLossScale, 100.0 * m.values[5].value);
  return m;
}

Verdict judge_f3a(Values values) {
  constexpr double kRegularly = 0.01;
  if (value_of(values, "share_above") > kRegularly) return Verdict::holds;
  const bool scaled = value_of(values, "share_above_summed") > kRegularly ||
                      value_of(values, "share_above_loss_scale") > kRegularly;
  return scaled ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// The root mean square of the largest channel over that of the median one, of x [tokens,
/// channels].
double channel_ratio(const FloatMatrix& x) {
  std::vector<double> squares(static_cast<std::size_t>(x.k));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto value = static_cast<double>(x.values[i]);
    squares[i % squares.size()] += value * value;
  }
  std::ranges::sort(squares);
  const double median = squares[squares.size() / 2];
  return median == 0.0 ? 0.0 : std::sqrt(squares.back() / median);
}

Measurement measure_t8(const ClaimContext& context) {
  const StudySettings settings = small_study(context, 400);
  WatchedCasts ratios;
  WatchedCasts amaxes;
  run_all(context, 2, [&](std::size_t i) {
    (i == 0 ? ratios : amaxes) = watch_casts(settings, "te-current", context.seed,
                                             ".qkv.activation", i == 0 ? channel_ratio : amax_of);
  });
  const std::size_t steps = ratios.steps.size();
  const std::size_t calibrated = steps / 4;
  const double early = ratios.largest(0, calibrated);
  const double late = ratios.largest(steps - calibrated, steps);
  const double growth = amaxes.largest(steps - calibrated, steps) / amaxes.largest(0, calibrated);
  Measurement m;
  m.figure = fmt::format(
      "the largest channel of the input of attention is at most {:.3g} times the median one in the "
      "first "
      "{} steps and {:.3g} times in the last {} of {}; the largest amax of the last is {:.3g} "
      "times that of the first, whose scale would {}",
      early, calibrated, late, calibrated, steps, growth,
      growth > 1.0 ? "saturate it" : "still do");
  m.values = {{"channel_ratio_early", "1", early},
              {"channel_ratio_late", "1", late},
              {"amax_growth", "1", growth}};
  return m;
}

Verdict judge_t8(Values values) {
  constexpr double kOutlier = 20.0;
  if (value_of(values, "channel_ratio_early") >= kOutlier) return Verdict::does_not_hold;
  return value_of(values, "channel_ratio_late") >= kOutlier ? Verdict::holds_with_correction
                                                            : Verdict::cannot_tell;
}

}  // namespace

std::vector<Claim> watched_claims() {
  return {
      {"F3a", kGuide, "Gradients regularly exceed 448 during training.",
       "amax of the output gradient of every linear layer at each of 160 steps, mean loss, 53440 "
       "parameters: a healthy run (te-current) and one that fails (unscaled E4M3)",
       "holds if more than 1 % of the healthy run's amaxes exceed 448; with a correction if they "
       "do "
       "only where the loss is a sum over tokens or multiplied by 65536, as for FP16",
       measure_f3a, judge_f3a},
      {"T8", kTutorial,
       "outlier features appear late, around step 1000 with 7B parameters and 5000 with 70B",
       "root mean square of the largest channel over that of the median one, in the input of "
       "attention after its norm, te-current, 53440 parameters, 400 steps",
       "it never holds, since the steps are those of other sizes; does not hold if a channel is 20 "
       "times the median within the first quarter; with a "
       "correction if one is in the last quarter only; cannot tell "
       "if none is, since no model of 7B parameters is trained here",
       measure_t8, judge_t8},
  };
}

}  // namespace fp8lab::experiments
