#pragma once
// A training run beside a shadow in high precision on the same batches, and a kill switch that acts
// before the loss of the run has left.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "fp8lab/metrics/kill_switch.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::train {

/// A step with the figures that a kill switch watches.
struct MeasuredStep {
  StepRecord record;
  StepFigures figures;
};

/// Runs the next step of `trainer`. The figures are of the matrices of its blocks, or, in a model
/// without blocks, of all matrices but embeddings and head: the largest magnitude of their
/// gradients before clipping, and the mean of v after the step.
MeasuredStep measured_step(Trainer& trainer, const PassContext& context);

struct ShadowOptions {
  KillThresholds thresholds{};
  KillAction action = KillAction::stop;
  std::int64_t snapshot_every = 10;  ///< steps; for roll_back and bf16
  int most_rollbacks = 3;            ///< the run ends at the alarm after these
};

/// An alarm and what was done.
struct KillEvent {
  std::int64_t step = 0;  ///< the last step of the run before the switch acted
  Indicator indicator = Indicator::loss_gap;
  double value = 0.0;  ///< of the indicator: a ratio to the shadow, or nats above it
  KillAction action = KillAction::stop;
  std::int64_t back_to = 0;  ///< the steps that the restored state has; for stop: all
};

struct ShadowedStep {
  StepRecord record;
  StepFigures run;
  std::optional<StepFigures> shadow;  ///< none after a switch to BF16
  std::optional<KillEvent> event;
};

class ShadowedTrainer {
 public:
  /// The shadow has the same model, seed, schedule and batches, BF16 products and FP32 states. It
  /// costs as much as a BF16 run. Throws `Error` as `Trainer` and `KillSwitch`, and for
  /// snapshot_every or most_rollbacks below 1.
  ShadowedTrainer(const TrainerOptions& options, const std::shared_ptr<const DataSource>& data,
                  const ShadowOptions& shadow);

  /// Runs the next step of both. A loss that is not finite is an alarm at once. After roll_back,
  /// both continue from snapshots of one step, taken before the window of the alarm (or of the
  /// first step), and leave the batches since then out. After bf16, the run does so in BF16 with
  /// FP32 states and without its shadow. Throws `Error` once the run has stopped.
  ShadowedStep step(const PassContext& context);

  [[nodiscard]] std::int64_t steps_done() const { return run_->steps_done(); }
  /// True after an alarm under stop, or after `most_rollbacks`.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The run as it is now; another object after a switch to BF16.
  [[nodiscard]] Trainer& trainer() { return *run_; }
  [[nodiscard]] const std::vector<KillEvent>& events() const { return events_; }

 private:
  struct Snapshot {
    TrainerSnapshot run;
    TrainerSnapshot shadow;
  };
  void take_snapshot();
  [[nodiscard]] std::optional<KillEvent> alarm_of(const StepFigures& figures) const;
  void act(KillEvent& event);
  void switch_to_bf16();

  ShadowOptions options_;
  std::shared_ptr<const DataSource> data_;
  std::unique_ptr<Trainer> run_;
  std::unique_ptr<Trainer> shadow_;
  KillSwitch switch_;
  std::deque<Snapshot> snapshots_;  ///< by step
  std::vector<KillEvent> events_;
  int rollbacks_ = 0;
  bool stopped_ = false;
};

}  // namespace fp8lab::train
