#pragma once
// Keeps NaN and Inf out of a training run: a step whose loss or gradients are
// not finite is undone by going back to a snapshot, and taken again.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>

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

struct GuardedStep {
  StepRecord record;  ///< rolled_back: what was found
  GuardOutcome outcome = GuardOutcome::taken;
};

/// A snapshot counts as good once the loss and all gradients computed from it
/// are finite: a bad update shows itself only there. So two are held, and a fault
/// costs up to `snapshot_every` + 1 steps that are taken again.
class NanGuard {
 public:
  /// `trainer` must outlive the guard. Throws `Error` for options below 1.
  explicit NanGuard(Trainer& trainer, GuardOptions options = {});

  /// Runs the next step; call until `trainer.steps_done()` is where it should be.
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

  Trainer& trainer_;
  GuardOptions options_;
  std::optional<TrainerSnapshot> good_;
  std::optional<TrainerSnapshot> candidate_;
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
