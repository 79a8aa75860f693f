// `train --attribute`: which part of a loss gap to BF16 comes from where.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "common/parallel.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "json_number.hpp"
#include "train_options.hpp"
#include "training/train/attribution.hpp"

namespace fp8lab::cli {
namespace {

/// One way to run, and by seed how much loss it has above BF16's.
struct AttributedRun {
  std::string what;
  train::TrainerOptions options;
  std::vector<double> gaps;  ///< nats; NaN where a loss was not finite
};

/// The mean loss of the last fifth of the steps; NaN if one loss is not finite.
double end_loss(train::TrainerOptions options, const TrainOptions& o, std::uint64_t seed) {
  options.seed = seed;
  options.optimizer.threads = 1;
  const std::shared_ptr<const train::DataSource> data =
      o.text.empty() ? train::synthetic_language({.vocabulary = o.shape.vocabulary}, seed)
                     : train::text_file(o.text, seed);
  train::Trainer trainer(options, data);
  const std::int64_t steps = o.schedule.steps;
  const std::int64_t last = std::max<std::int64_t>(1, steps / 5);
  double sum = 0.0;
  while (trainer.steps_done() < steps) {
    const double loss = trainer.step({.threads = 1, .on_cast = {}}).loss;
    if (!std::isfinite(loss)) return std::numeric_limits<double>::quiet_NaN();
    if (trainer.steps_done() > steps - last) sum += loss;
  }
  return sum / static_cast<double>(last);
}

/// The whole run, each part alone, and the run without each part.
std::vector<AttributedRun> runs_of(const train::TrainerOptions& run) {
  std::vector<AttributedRun> runs{{"all", run, {}}};
  const std::vector<train::RunPart> parts = train::parts_of(run);
  for (const train::RunPart part : parts)
    if (const auto alone = train::with_part_alone(run, part))
      runs.push_back({fmt::format("{} alone", to_string(part)), *alone, {}});
  for (const train::RunPart part : parts)
    runs.push_back(
        {fmt::format("all but {}", to_string(part)), train::without_part(run, part), {}});
  return runs;
}

void take_runs(std::vector<AttributedRun>& runs, const train::TrainerOptions& high,
               const TrainOptions& o) {
  const auto seeds = static_cast<std::size_t>(*o.attribute);
  std::vector<double> losses((runs.size() + 1) * seeds);
  RunContext context;
  context.threads = o.threads;
  experiments::parallel_points(context, losses.size(), [&](std::size_t i) {
    const std::size_t run = i / seeds;
    losses[i] = end_loss(run == 0 ? high : runs[run - 1].options, o, o.seed + i % seeds);
  });
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (std::size_t s = 0; s < seeds; ++s)
      runs[r].gaps.push_back(losses[(r + 1) * seeds + s] - losses[s]);
}

std::vector<double> finite_of(const std::vector<double>& gaps) {
  std::vector<double> finite;
  std::ranges::copy_if(gaps, std::back_inserter(finite), [](double g) { return std::isfinite(g); });
  return finite;
}

nlohmann::json json_of(const AttributedRun& run) {
  const std::vector<double> finite = finite_of(run.gaps);
  const experiments::Interval interval = experiments::interval_of(finite);
  nlohmann::json gaps = nlohmann::json::array();
  for (const double gap : run.gaps) gaps.push_back(json_number(gap));
  return {{"run", run.what},
          {"gap", json_number(finite.empty() ? std::nan("") : interval.mean)},
          {"half_width", json_number(interval.half_width)},
          {"broke_off", run.gaps.size() - finite.size()},
          {"gaps", gaps}};
}

void print_runs(const std::vector<AttributedRun>& runs, const TrainOptions& o) {
  fmt::print("loss above BF16 with FP32 states, last fifth of {}, {}\n",
             counted(o.schedule.steps, "step"), counted(*o.attribute, "seed"));
  for (const AttributedRun& run : runs) {
    const std::vector<double> finite = finite_of(run.gaps);
    const std::size_t broken = run.gaps.size() - finite.size();
    fmt::print("  {:<16} {}{}\n", run.what,
               finite.empty() ? "" : experiments::interval_text(finite) + " nats",
               broken == 0 ? ""
                           : fmt::format("{}{} broke off", finite.empty() ? "" : ", ",
                                         counted(static_cast<std::int64_t>(broken), "seed")));
  }
  fmt::print("{}\n", experiments::kIntervalMeaning);
}

}  // namespace

int run_attribution(const TrainOptions& o) {
  require(!parallel_options(o), "--attribute", "one rank without a wire",
          fmt::format("--recipe {} --ranks {}", o.recipe, o.ranks));
  require(o.checkpoint.empty() && o.log.empty() && o.trace.empty() && o.kill_switch.empty() &&
              !o.guard && !o.raise_gradient_scale && !o.stop_when,
          "--attribute", "no option that watches one run",
          "--checkpoint, --log, --trace, --kill-switch, --guard, --raise-gradient-scale or "
          "--stop-when");
  const train::TrainerOptions run = trainer_options(o);
  std::vector<AttributedRun> runs = runs_of(run);
  require(runs.size() > 1, "--attribute", "a run that differs from BF16 with FP32 states",
          fmt::format("--recipe {}", o.recipe));
  take_runs(runs, train::in_high_precision(run), o);
  if (!o.json) {
    print_runs(runs, o);
    return kPass;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const AttributedRun& one : runs) rows.push_back(json_of(one));
  fmt::print("{}\n", json_text(nlohmann::json{{"seeds", *o.attribute}, {"runs", rows}}, 2));
  return kPass;
}

}  // namespace fp8lab::cli
