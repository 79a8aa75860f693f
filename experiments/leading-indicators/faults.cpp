#include "leading-indicators/faults.hpp"

#include <array>
#include <cstring>
#include <limits>

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"none", "transient", "persistent"};

/// Spoils the gradients when its time comes.
class Injector {
 public:
  Injector(const Fault& fault, const train::Trainer& trainer) : fault_(fault), trainer_(&trainer) {}

  void operator()(train::Model<float>& model) {
    ++attempts_;
    const bool due = trainer_->steps_done() == fault_.step && fault_.kind != FaultKind::none;
    if (!due || (fired_ && fault_.kind == FaultKind::transient)) return;
    fired_ = true;
    model.parameters().front()->gradient.front() = std::numeric_limits<float>::quiet_NaN();
  }
  [[nodiscard]] std::int64_t attempts() const { return attempts_; }

 private:
  Fault fault_;
  const train::Trainer* trainer_;
  bool fired_ = false;
  std::int64_t attempts_ = 0;
};

void run_unguarded(train::Trainer& trainer, const train::PassContext& context, Injector& inject,
                   std::vector<double>& losses) {
  for (double& loss : losses) {
    loss = trainer.compute_gradients(trainer.steps_done(), context);
    inject(trainer.model());
    (void)trainer.apply_gradients(loss);
  }
}

void run_guarded(train::Trainer& trainer, const train::PassContext& context, Injector& inject,
                 std::int64_t snapshot_every, FaultyRun& run) {
  train::NanGuard guard(trainer, {.snapshot_every = snapshot_every});
  while (trainer.steps_done() < static_cast<std::int64_t>(run.losses.size())) {
    const train::GuardedStep step =
        guard.step(context, [&](train::Model<float>& model) { inject(model); });
    if (step.outcome == train::GuardOutcome::taken)
      run.losses[static_cast<std::size_t>(step.record.step)] = step.record.loss;
  }
  run.snapshots = guard.snapshots();
  run.rollbacks = guard.rollbacks();
  run.replayed = guard.replayed_steps();
  run.skipped = guard.skipped_steps();
}

}  // namespace

std::string_view to_string(FaultKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

FaultyRun run_with_fault(const StudySettings& settings, const Variant& variant, std::uint64_t seed,
                         const Fault& fault, std::int64_t snapshot_every) {
  train::Trainer trainer(trainer_options(settings, variant, {}, seed),
                         training_data(settings, seed));
  Injector inject(fault, trainer);
  FaultyRun run;
  run.losses.assign(static_cast<std::size_t>(settings.schedule.steps),
                    std::numeric_limits<double>::quiet_NaN());
  if (snapshot_every == 0)
    run_unguarded(trainer, pass_context(settings), inject, run.losses);
  else
    run_guarded(trainer, pass_context(settings), inject, snapshot_every, run);
  run.attempts = inject.attempts();
  run.snapshot_bytes = trainer.snapshot().bytes();
  for (const auto* p : trainer.model().parameters())
    run.weights.insert(run.weights.end(), p->value.begin(), p->value.end());
  return run;
}

bool same_weights(const FaultyRun& a, const FaultyRun& b) {
  return a.weights.size() == b.weights.size() &&
         std::memcmp(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)) == 0;
}

}  // namespace fp8lab::experiments
