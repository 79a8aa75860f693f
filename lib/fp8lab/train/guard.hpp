#pragma once
// Keeps NaN and Inf out of a training run: a step whose loss or gradients are
// not finite is undone by going back to a snapshot, and taken again.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "fp8lab/train/parallel_trainer.hpp"
#include "fp8lab/train/trainer.hpp"

namespace fp8lab::train {

struct GuardOptions {
  std::int64_t snapshot_every = 1;  ///< steps
  int most_rollbacks = 8;           ///< without a step further than any before
};

enum class GuardOutcome : std::uint8_t {
  taken,        ///< the step was finite
  rolled_back,  ///< it was not; the trainer stands at an earlier step
  skipped,      ///< it had failed twice: its batch is left out
};

/// A run that a guard watches: of one trainer, or of several ranks.
struct GuardedRun {
  /// A state to go back to.
  struct State {
    std::int64_t step = 0;
    std::function<void()> restore;
  };
  std::function<std::int64_t()> steps_done;
  std::function<double(const PassContext&)> compute_gradients;  ///< of the next step
  std::function<StepRecord(double)> apply_gradients;
  std::function<void()> skip_step;
  std::function<Model<float>&()> model;  ///< whose gradients are checked
  std::function<State()> snapshot;
};
/// `trainer` must outlive the run.
GuardedRun guarded_run(Trainer& trainer);
/// The gradients that are checked are the means over the ranks, the same bits on all of them: with
/// several processes each one decides alike. `look`: as `ParallelTrainer::step` has it, read at
/// each step; it and `trainer` must outlive the run.
GuardedRun guarded_run(ParallelTrainer& trainer, const bool& look);

struct GuardedStep {
  StepRecord record;  ///< rolled_back: what was found
  GuardOutcome outcome = GuardOutcome::taken;
};

/// A snapshot counts as good once the loss and all gradients computed from it
/// are finite: a bad update shows itself only there. So two are held, and a fault
/// costs up to `snapshot_every` + 1 steps that are taken again.
class NanGuard {
 public:
  /// Throws `Error` for options below 1.
  explicit NanGuard(GuardedRun run, GuardOptions options = {});
  explicit NanGuard(Trainer& trainer, GuardOptions options = {})
      : NanGuard(guarded_run(trainer), options) {}

  /// Runs the next step; call until the trainer's `steps_done()` is where it should be.
  /// `on_gradients` may change the gradients before they are checked. Throws `Error`
  /// where no snapshot is good yet, and after `most_rollbacks`.
  GuardedStep step(const PassContext& context,
                   const std::function<void(Model<float>&)>& on_gradients = {});

  [[nodiscard]] std::int64_t snapshots() const { return snapshots_; }
  [[nodiscard]] std::int64_t rollbacks() const { return rollbacks_; }
  [[nodiscard]] std::int64_t replayed_steps() const { return replayed_; }
  [[nodiscard]] std::int64_t skipped_steps() const { return skipped_; }

 private:
  void take_snapshot();
  void roll_back();

  GuardedRun run_;
  GuardOptions options_;
  std::optional<GuardedRun::State> good_;
  std::optional<GuardedRun::State> candidate_;
  std::set<std::int64_t> failed_;  ///< steps that failed once
  std::set<std::int64_t> left_out_;
  std::int64_t furthest_ = 0;
  int rollbacks_since_ = 0;
  std::int64_t snapshots_ = 0;
  std::int64_t rollbacks_ = 0;
  std::int64_t replayed_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace fp8lab::train
