#include "fp8lab/train/guard.hpp"

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

NanGuard::NanGuard(Trainer& trainer, GuardOptions options)
    : trainer_(trainer), options_(options), furthest_(trainer.steps_done()) {
  require(options.snapshot_every >= 1, "snapshot_every", "at least 1",
          fmt::format("{}", options.snapshot_every));
  require(options.most_rollbacks >= 1, "most_rollbacks", "at least 1",
          fmt::format("{}", options.most_rollbacks));
}

void NanGuard::take_snapshot() {
  const std::int64_t newest = candidate_ ? candidate_->step() : good_ ? good_->step() : -1;
  const bool due = newest < 0 || trainer_.steps_done() >= newest + options_.snapshot_every;
  if (candidate_ || !due) return;
  candidate_ = trainer_.snapshot();
  ++snapshots_;
}

void NanGuard::roll_back() {
  const std::int64_t failed = trainer_.steps_done();
  require(good_.has_value() && rollbacks_since_ < options_.most_rollbacks,
          fmt::format("gradients of step {}", failed), "finite",
          good_ ? fmt::format("not, after {} rollbacks", rollbacks_since_)
                : "not, and no step before it");
  if (!failed_.insert(failed).second) left_out_.insert(failed);
  candidate_.reset();
  trainer_.restore(*good_);
  ++rollbacks_;
  ++rollbacks_since_;
}

GuardedStep NanGuard::step(const PassContext& context,
                           const std::function<void(Model<float>&)>& on_gradients) {
  const std::int64_t now = trainer_.steps_done();
  if (left_out_.contains(now)) {
    trainer_.skip_step();
    ++skipped_;
    return {{.step = now}, GuardOutcome::skipped};
  }
  take_snapshot();
  const double loss = trainer_.compute_gradients(now, context);
  if (on_gradients) on_gradients(trainer_.model());
  if (!std::isfinite(loss) || !all_finite(trainer_.model())) {
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
  return {trainer_.apply_gradients(loss), GuardOutcome::taken};
}

}  // namespace fp8lab::train
