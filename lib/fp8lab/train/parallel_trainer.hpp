#pragma once
// Data-parallel training: every rank has a model and an optimizer of its own and sees its own
// batches; gradients meet in an all-reduce of the library.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fp8lab/optim/partition.hpp"
#include "fp8lab/train/gradient_reducer.hpp"
#include "fp8lab/train/trainer.hpp"

namespace fp8lab::train {

struct ParallelOptions {
  ReductionOptions reduction;
  /// Each tensor's master weight and moments live on one rank, which updates it and sends the new
  /// weights to the others (`partition_whole_tensors`: FP8-LM's Algorithm 1). Not one bit of a
  /// run depends on it; memory does.
  bool whole_tensor_zero = false;
};

/// What the states of a rank take.
struct RankMemory {
  std::int64_t largest = 0;  ///< bytes of master weights and moments with scales, fullest rank
  std::int64_t smallest = 0;
  std::int64_t total = 0;  ///< over all ranks
};

class ParallelTrainer {
 public:
  /// Worker r of N takes the batches step N + r. Weights start equal and stay so, since all ranks
  /// end an all-reduce with the same bytes. FP8 casts of the blocks keep to their rank: amaxes are
  /// not shared (*chosen*; TransformerEngine shares them). Every process of the fabric makes the
  /// same calls. Throws `Error` as `Trainer` and `GradientReducer` do.
  ParallelTrainer(Fabric& fabric, const TrainerOptions& trainer,
                  const std::shared_ptr<const DataSource>& data, const ParallelOptions& options);

  /// The next step of all ranks. Loss: the mean over them; gradient norm: that of the mean
  /// gradient. `look`: the reductions are compared with binary32 ones. Casts of the first rank here
  /// are shown to `context`.
  StepRecord step(const PassContext& context, bool look);

  /// The halves of a step: `step` is apply_gradients(compute_gradients(context, look)). After the
  /// first one every rank's gradients are the mean over all ranks.
  double compute_gradients(const PassContext& context, bool look);
  StepRecord apply_gradients(double loss);
  /// Ends the step without an update on every rank: its batches are not seen.
  void skip_step();

  /// Everything that later steps depend on: of each rank, and mu of each tensor.
  struct Snapshot {
    std::vector<TrainerSnapshot> trainers;
    std::vector<AutoScaler> scalers;
  };
  [[nodiscard]] Snapshot snapshot() const;
  /// Continues from a snapshot to the bits of a run that never left it.
  void restore(const Snapshot& snapshot);

  /// Writes one checkpoint file for all ranks: the states of each (without ZeRO those of the first,
  /// which all share), the amaxes of each, mu of each tensor. A crash leaves the old file or the
  /// new one, whole. Throws `Error` where other processes have ranks.
  void save(const std::filesystem::path& path) const;
  /// Continues from a checkpoint to the bits of a run that never stopped; what the reducer has
  /// counted begins anew. Throws `Error` naming the file for other options, ranks, wires, scalings,
  /// ZeRO or data, and where other processes have ranks.
  void resume(const std::filesystem::path& path);

  [[nodiscard]] std::int64_t steps_done() const { return trainers_.front()->steps_done(); }
  [[nodiscard]] std::int64_t parameter_count() const {
    return trainers_.front()->parameter_count();
  }
  /// Of the first rank of this process.
  [[nodiscard]] Trainer& first() { return *trainers_.front(); }
  [[nodiscard]] const GradientReducer& reducer() const { return reducer_; }
  [[nodiscard]] const RankMemory& memory() const { return memory_; }

 private:
  [[nodiscard]] std::string fingerprint() const;
  void require_all_ranks() const;
  [[nodiscard]] std::vector<std::span<float>> gradients(std::size_t tensor);
  void share_states();
  void send_weights();

  Fabric& fabric_;
  ParallelOptions options_;
  RankSpan hosted_;
  std::vector<std::unique_ptr<Trainer>> trainers_;  ///< one a hosted rank, at least one
  GradientReducer reducer_;
  std::vector<std::size_t> owner_;  ///< of each tensor; empty without ZeRO
  RankMemory memory_;
};

}  // namespace fp8lab::train
