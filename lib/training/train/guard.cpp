#include "training/train/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fp8lab::train {
namespace {

bool all_finite(Model<float>& model) {
  for (const Parameter<float>* p : model.parameters())
    if (!std::all_of(p->gradient.begin(), p->gradient.end(),
                     [](float g) { return std::isfinite(g); }))
      return false;
  return true;
}

}  // namespace

GuardedRun guarded_run(Trainer& trainer) {
  return {[&] { return trainer.steps_done(); },
          [&](const PassContext& c) { return trainer.compute_gradients(trainer.steps_done(), c); },
          [&](double loss) { return trainer.apply_gradients(loss); },
          [&] { trainer.skip_step(); },
          [&]() -> Model<float>& { return trainer.model(); },
          [&]() -> GuardedRun::State {
            auto state = std::make_shared<TrainerSnapshot>(trainer.snapshot());
            return {trainer.steps_done(), [&trainer, state] { trainer.restore(*state); }};
          }};
}

GuardedRun guarded_run(ParallelTrainer& trainer, const bool& look) {
  return {[&] { return trainer.steps_done(); },
          [&](const PassContext& c) { return trainer.compute_gradients(c, look); },
          [&](double loss) { return trainer.apply_gradients(loss); },
          [&] { trainer.skip_step(); },
          [&]() -> Model<float>& { return trainer.first().model(); },
          [&]() -> GuardedRun::State {
            auto state = std::make_shared<ParallelTrainer::Snapshot>(trainer.snapshot());
            return {trainer.steps_done(), [&trainer, state] { trainer.restore(*state); }};
          }};
}

NanGuard::NanGuard(GuardedRun run, GuardOptions options)
    : run_(std::move(run)), options_(options), furthest_(run_.steps_done()) {
  require(options.snapshot_every >= 1, "snapshot_every", "at least 1",
          fmt::format("{}", options.snapshot_every));
  require(options.most_rollbacks >= 1, "most_rollbacks", "at least 1",
          fmt::format("{}", options.most_rollbacks));
}

void NanGuard::take_snapshot() {
  const std::int64_t newest = candidate_ ? candidate_->step : good_ ? good_->step : -1;
  const bool due = newest < 0 || run_.steps_done() >= newest + options_.snapshot_every;
  if (candidate_ || !due) return;
  candidate_ = run_.snapshot();
  ++snapshots_;
}

void NanGuard::roll_back() {
  const std::int64_t failed = run_.steps_done();
  require(good_.has_value() && rollbacks_since_ < options_.most_rollbacks,
          fmt::format("gradients of step {}", failed), "finite",
          good_ ? fmt::format("not finite, after {} rollbacks", rollbacks_since_)
                : "not finite, and there is no step before it");
  if (!failed_.insert(failed).second) left_out_.insert(failed);
  candidate_.reset();
  good_->restore();
  ++rollbacks_;
  ++rollbacks_since_;
}

GuardedStep NanGuard::step(const PassContext& context,
                           const std::function<void(Model<float>&)>& on_gradients) {
  const std::int64_t now = run_.steps_done();
  if (left_out_.contains(now)) {
    run_.skip_step();
    ++skipped_;
    return {{.step = now}, GuardOutcome::skipped};
  }
  take_snapshot();
  const double loss = run_.compute_gradients(context);
  if (on_gradients) on_gradients(run_.model());
  if (!std::isfinite(loss) || !all_finite(run_.model())) {
    roll_back();
    return {{.step = now, .loss = loss}, GuardOutcome::rolled_back};
  }
  if (candidate_) good_ = std::exchange(candidate_, std::nullopt);
  if (now < furthest_) {
    ++replayed_;
  } else {
    furthest_ = now + 1;
    rollbacks_since_ = 0;
  }
  return {run_.apply_gradients(loss), GuardOutcome::taken};
}

}  // namespace fp8lab::train
