#include "train/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/names.hpp"
#include "training/train/monitor.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Means over the casts of a step that was looked at.
class CastLosses {
 public:
  void add(const train::TrainingMonitor& monitor) {
    for (const auto& [name, record] : monitor.tensors()) {
      const auto& s = record.statistics;
      if (name.ends_with(".gradient")) gradient_.add(s.underflow_percent);
      if (name.ends_with(".activation")) activation_.add(s.underflow_percent);
      saturated_.add(s.saturated_percent);
    }
  }
  void store(TrainingRun& run) const {
    run.gradient_zero_percent = gradient_.mean();
    run.activation_zero_percent = activation_.mean();
    run.saturated_percent = saturated_.mean();
  }

 private:
  struct Mean {
    void add(double value) {
      sum += value;
      ++count;
    }
    [[nodiscard]] double mean() const {
      return count == 0 ? 0.0 : sum / static_cast<double>(count);
    }
    double sum = 0.0;
    std::int64_t count = 0;
  };
  Mean gradient_;
  Mean activation_;
  Mean saturated_;
};

std::size_t tail_length(const StudySettings& s, std::size_t steps) {
  return std::max<std::size_t>(1,
                               static_cast<std::size_t>(s.tail_share * static_cast<double>(steps)));
}

double mean_of(const std::vector<double>& x, std::size_t begin, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = begin; i < begin + count; ++i) sum += x[i];
  return sum / static_cast<double>(count);
}

}  // namespace

std::string to_string(Outcome outcome) {
  constexpr std::array<const char*, 3> kNames{"follows", "stalls", "diverges"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Outcome worst(const OutcomeCounts& counts) {
  if (counts[2] > 0) return Outcome::diverges;
  return counts[1] > 0 ? Outcome::stalls : Outcome::follows;
}

std::string sentence_of(const NamedOutcomes& outcomes, std::string_view noun,
                        std::string_view reference) {
  const auto& [follow, stall, diverge] = outcomes.names;
  const std::size_t all = follow.size() + stall.size() + diverge.size() + outcomes.disagree.size();
  std::string sentence = fmt::format("{} of {} {} follow {}", follow.size(), all, noun, reference);
  if (!follow.empty()) sentence += fmt::format(" ({})", in_words(follow));
  const auto add = [&](const std::vector<std::string>& names, std::string_view verb) {
    if (names.empty()) return;
    sentence += fmt::format("; {} {}{}", in_words(names), verb, names.size() == 1 ? "s" : "");
  };
  add(stall, "stall");
  add(diverge, "diverge");
  if (!outcomes.disagree.empty())
    sentence += fmt::format("; seeds disagree about {}", in_words(outcomes.disagree));
  return sentence;
}

train::PassContext pass_context(const StudySettings& settings, int threads) {
  return {.threads = threads, .on_cast = {}, .backend = settings.backend};
}

std::shared_ptr<const train::DataSource> training_data(const StudySettings& settings,
                                                       std::uint64_t seed) {
  if (!settings.text.empty()) return train::text_file(settings.text, seed);
  return train::synthetic_language({.vocabulary = settings.shape.vocabulary}, seed);
}

train::TrainerOptions trainer_options(const StudySettings& settings, const Variant& variant,
                                      train::OutlierChannels outliers, std::uint64_t seed) {
  train::TrainerOptions options;
  options.model = settings.shape;
  options.recipe.blocks = variant.recipe;
  if (variant.recipe.name == "fp32") options.recipe.head = variant.recipe;
  for (train::LinearRecipe* recipe : {&options.recipe.blocks, &options.recipe.head})
    train::set_bf16_accumulator(*recipe, settings.bf16_accumulator);
  options.recipe.outliers = outliers;
  options.schedule = settings.schedule;
  options.sequences = settings.sequences;
  options.optimizer = settings.optimizer;
  options.optimizer.threads = 1;  // runs are parallel, not their steps
  options.length = settings.shape.length;
  options.loss_scale = variant.loss_scale;
  options.seed = seed;
  return options;
}

TrainingRun train_variant(const StudySettings& settings, const Variant& variant,
                          train::OutlierChannels outliers, std::uint64_t seed) {
  train::Trainer trainer(trainer_options(settings, variant, outliers, seed),
                         training_data(settings, seed));
  TrainingRun run;
  run.parameters = trainer.parameter_count();
  run.losses.assign(static_cast<std::size_t>(settings.schedule.steps), kNan);
  CastLosses losses;
  const std::int64_t every = std::max<std::int64_t>(
      1, settings.schedule.steps / std::max<std::int64_t>(1, settings.samples));
  for (std::int64_t step = 0; step < settings.schedule.steps; ++step) {
    train::TrainingMonitor monitor;
    train::PassContext context = pass_context(settings);
    const bool look = step % every == every - 1;
    if (look)
      context.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor& q) {
        monitor.observe(name, x, q);
      };
    const double loss = trainer.step(context).loss;
    if (!std::isfinite(loss)) break;
    if (look) losses.add(monitor);
    run.losses[static_cast<std::size_t>(step)] = loss;
  }
  losses.store(run);
  return run;
}

double tail_loss(const StudySettings& settings, const std::vector<double>& losses) {
  const std::size_t tail = tail_length(settings, losses.size());
  return mean_of(losses, losses.size() - tail, tail);
}

Outcome judge(const StudySettings& settings, const std::vector<double>& losses,
              const std::vector<double>& reference) {
  const double tail = tail_loss(settings, losses);
  if (std::isnan(tail)) return Outcome::diverges;
  if (tail - tail_loss(settings, reference) <= settings.follow_nats) return Outcome::follows;
  const std::size_t length = tail_length(settings, losses.size());
  double lowest = tail;
  for (std::size_t begin = 0; begin + length <= losses.size(); begin += length)
    lowest = std::min(lowest, mean_of(losses, begin, length));
  return tail - lowest > settings.diverge_nats ? Outcome::diverges : Outcome::stalls;
}

}  // namespace fp8lab::experiments
