#include "training/train/shadowed_trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::train {
namespace {

/// The same run with BF16 products and FP32 states.
TrainerOptions in_bf16(TrainerOptions options) {
  options.recipe.blocks = bf16_recipe();
  options.recipe.head = bf16_recipe();
  options.recipe.layers.clear();
  options.optimizer.master = {};
  options.optimizer.gradient = {};
  options.optimizer.m = {};
  options.optimizer.v = {};
  return options;
}

bool is_watched(const Parameter<float>& p) {
  const bool outside = p.name.find("embedding") != std::string::npos || p.name.starts_with("head");
  return p.shape.size() == 2 && !outside;
}

double gradient_amax(Model<float>& model) {
  float largest = 0.0F;
  for (const Parameter<float>* p : model.parameters())
    if (is_watched(*p)) largest = std::max(largest, amax(p->gradient, false));
  return static_cast<double>(largest);
}

double mean_second_moment(Trainer& trainer) {
  PairwiseSum sum;
  std::size_t count = 0;
  std::size_t i = 0;
  for (const Parameter<float>* p : trainer.model().parameters()) {
    const std::size_t at = i++;
    if (!is_watched(*p)) continue;
    std::vector<float> v(p->value.size());
    trainer.optimizer().copy_v(at, v);
    for (const float x : v) sum.add(static_cast<double>(x));
    count += v.size();
  }
  return count == 0 ? 0.0 : sum.total() / static_cast<double>(count);
}

/// Leaves out the batches before step `step`.
void skip_to(Trainer& trainer, std::int64_t step) {
  while (trainer.steps_done() < step) trainer.skip_step();
}

}  // namespace

MeasuredStep measured_step(Trainer& trainer, const PassContext& context) {
  MeasuredStep step;
  step.figures.loss = trainer.compute_gradients(trainer.steps_done(), context);
  step.figures.gradient_amax = gradient_amax(trainer.model());
  step.record = trainer.apply_gradients(step.figures.loss);
  step.figures.second_moment = mean_second_moment(trainer);
  return step;
}

ShadowedTrainer::ShadowedTrainer(const TrainerOptions& options,
                                 const std::shared_ptr<const DataSource>& data,
                                 const ShadowOptions& shadow)
    : options_(shadow),
      data_(data),
      run_(std::make_unique<Trainer>(options, data)),
      shadow_(std::make_unique<Trainer>(in_bf16(options), data)),
      switch_(shadow.thresholds) {
  require(shadow.snapshot_every >= 1, "snapshot_every", "at least 1",
          fmt::format("{}", shadow.snapshot_every));
  require(shadow.most_rollbacks >= 1, "most_rollbacks", "at least 1",
          fmt::format("{}", shadow.most_rollbacks));
}

/// Keeps the snapshots that an alarm of this or a later step may need: the newest of those that are
/// old enough for this one, and all since.
void ShadowedTrainer::take_snapshot() {
  if (options_.action == KillAction::stop) return;
  const std::int64_t now = run_->steps_done();
  if (snapshots_.empty() || now >= snapshots_.back().run.step() + options_.snapshot_every)
    snapshots_.push_back({run_->snapshot(), shadow_->snapshot()});
  const std::int64_t needed = now - options_.thresholds.window - options_.thresholds.patience;
  while (snapshots_.size() > 1 && snapshots_[1].run.step() <= needed) snapshots_.pop_front();
}

std::optional<KillEvent> ShadowedTrainer::alarm_of(const StepFigures& figures) const {
  KillEvent event{.step = run_->steps_done() - 1, .action = options_.action};
  event.back_to = run_->steps_done();
  if (!std::isfinite(figures.loss)) {
    event.value = std::numeric_limits<double>::infinity();
    return event;
  }
  const std::optional<Indicator> cause = switch_.cause();
  if (!cause) return std::nullopt;
  event.indicator = *cause;
  event.value = switch_.value(*cause);
  return event;
}

/// The restored state is run on in new arithmetic; its weights and moments are taken over as
/// values.
void ShadowedTrainer::switch_to_bf16() {
  auto high = std::make_unique<Trainer>(in_bf16(run_->options()), data_);
  high->take_over(*run_);
  run_ = std::move(high);
  shadow_.reset();
}

void ShadowedTrainer::act(KillEvent& event) {
  if (event.action == KillAction::stop || rollbacks_ == options_.most_rollbacks) {
    event.action = KillAction::stop;
    stopped_ = true;
    return;
  }
  const Snapshot& back = snapshots_.front();
  event.back_to = back.run.step();
  run_->restore(back.run);
  shadow_->restore(back.shadow);
  ++rollbacks_;
  if (event.action == KillAction::bf16) switch_to_bf16();
  skip_to(*run_, event.step + 1);
  if (shadow_) skip_to(*shadow_, event.step + 1);
  snapshots_.clear();
  switch_ = KillSwitch(options_.thresholds);
}

ShadowedStep ShadowedTrainer::step(const PassContext& context) {
  require(!stopped_, "step", "a run that the kill switch has not stopped",
          fmt::format("one stopped after {} steps", steps_done()));
  if (shadow_) take_snapshot();
  const MeasuredStep run = measured_step(*run_, context);
  ShadowedStep step{.record = run.record, .run = run.figures, .shadow = {}, .event = {}};
  if (!shadow_) return step;
  PassContext silent = context;
  silent.on_cast = {};
  step.shadow = measured_step(*shadow_, silent).figures;
  switch_.observe(step.run, *step.shadow);
  step.event = alarm_of(step.run);
  if (step.event) {
    act(*step.event);
    events_.push_back(*step.event);
  }
  return step;
}

}  // namespace fp8lab::train
