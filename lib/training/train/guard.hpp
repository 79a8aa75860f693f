#pragma once
// Protects a training run from NaN and Inf: if the loss or the gradients of a step are
// not finite, the run returns to a snapshot and repeats its steps.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "training/train/parallel_trainer.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::train {

struct GuardOptions {
  std::int64_t snapshot_every = 1;  ///< steps
  int most_rollbacks = 8;           ///< limit of rollbacks without progress in between
};

enum class GuardOutcome : std::uint8_t {
  taken,        ///< the step was finite
  rolled_back,  ///< the step was not finite; the trainer is at an earlier step
  skipped,      ///< the step failed twice; its batch is left out
};

/// A run under a guard: one trainer, or several ranks.
struct GuardedRun {
  /// A state for a rollback.
  struct State {
    std::int64_t step = 0;
    std::function<void()> restore;
  };
  std::function<std::int64_t()> steps_done;
  std::function<double(const PassContext&)> compute_gradients;  ///< for the next step
  std::function<StepRecord(double)> apply_gradients;
  std::function<void()> skip_step;
  std::function<Model<float>&()> model;  ///< whose gradients are checked
  std::function<State()> snapshot;
};
/// `trainer` must outlive the run.
GuardedRun guarded_run(Trainer& trainer);
/// Checks the mean gradients over the ranks. They have the same bits on all ranks, so all processes
/// decide alike. `look`: see `ParallelTrainer::step`; it is read at each step. `look` and
/// `trainer` must outlive the run.
GuardedRun guarded_run(ParallelTrainer& trainer, const bool& look);

struct GuardedStep {
  StepRecord record;  ///< for rolled_back: the record of the failed step
  GuardOutcome outcome = GuardOutcome::taken;
};

/// A snapshot is good if the loss and all gradients computed from it are finite,
/// since only these reveal a bad update. So the guard keeps two snapshots, and a
/// fault repeats at most `snapshot_every` + 1 steps.
class NanGuard {
 public:
  /// Throws `Error` for options below 1.
  explicit NanGuard(GuardedRun run, GuardOptions options = {});
  explicit NanGuard(Trainer& trainer, GuardOptions options = {})
      : NanGuard(guarded_run(trainer), options) {}

  /// Runs the next step. Call it until the trainer's `steps_done()` is the wanted number.
  /// `on_gradients` may change the gradients before they are checked. Throws `Error` if
  /// no snapshot is good yet, and after `most_rollbacks`.
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
