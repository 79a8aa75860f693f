#pragma once
// Data-parallel training: every rank has its own model, optimizer and batches. An all-reduce of
// the library averages the gradients.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "training/optim/partition.hpp"
#include "training/train/gradient_reducer.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::train {

struct ParallelOptions {
  ReductionOptions reduction;
  /// One rank stores the master weight and moments of each tensor, updates it and sends the new
  /// weights to the others (`partition_whole_tensors`: FP8-LM's Algorithm 1). This changes the
  /// memory of a run, but no bit of its results.
  bool whole_tensor_zero = false;
};

/// The memory of the optimizer states of the ranks.
struct RankMemory {
  std::int64_t largest = 0;  ///< bytes of master weights and moments with scales, fullest rank
  std::int64_t smallest = 0;
  std::int64_t total = 0;  ///< over all ranks
};

class ParallelTrainer {
 public:
  /// Rank r of N takes the batches step * N + r. Weights are equal on all ranks at all times, since
  /// an all-reduce gives all of them the same bytes. FP8 casts use the amaxes of their rank only
  /// (*chosen*; TransformerEngine shares amaxes). Every process of the fabric must make the same
  /// calls. Throws `Error` as `Trainer` and `GradientReducer`.
  ParallelTrainer(Fabric& fabric, const TrainerOptions& trainer,
                  const std::shared_ptr<const DataSource>& data, const ParallelOptions& options);

  /// Runs the next step of all ranks. The loss is the mean over the ranks, the gradient norm that
  /// of the mean gradient. `look`: compare the reductions with binary32 ones. `context` observes
  /// the casts of the first rank of this process.
  StepRecord step(const PassContext& context, bool look);

  /// The two halves of a step: `step` is apply_gradients(compute_gradients(context, look)). After
  /// the first half, the gradients of every rank are the mean over all ranks.
  double compute_gradients(const PassContext& context, bool look);
  StepRecord apply_gradients(double loss);
  /// Ends the step without an update on every rank: its batches are not used.
  void skip_step();

  /// The complete state: that of each rank, and mu of each tensor.
  struct Snapshot {
    std::vector<TrainerSnapshot> trainers;
    std::vector<AutoScaler> scalers;
  };
  [[nodiscard]] Snapshot snapshot() const;
  /// Restores a snapshot. All later steps have the bits of an uninterrupted run.
  void restore(const Snapshot& snapshot);

  /// Writes one checkpoint file for all ranks: the states of each (without ZeRO only those of the
  /// first, since all are equal), the amaxes of each, mu of each tensor. The write is atomic: a
  /// crash leaves the old or the new file. Throws `Error` if other processes have ranks.
  void save(const std::filesystem::path& path) const;
  /// Restores a checkpoint. All later steps have the bits of an uninterrupted run; the counts of
  /// the reducer start at 0. Throws `Error` that names the file for other options, ranks, wires,
  /// scalings, ZeRO or data, and if other processes have ranks.
  void resume(const std::filesystem::path& path);

  [[nodiscard]] std::int64_t steps_done() const { return trainers_.front()->steps_done(); }
  [[nodiscard]] std::int64_t parameter_count() const {
    return trainers_.front()->parameter_count();
  }
  /// The trainer of the first rank of this process.
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
  std::vector<std::unique_ptr<Trainer>> trainers_;  ///< one per hosted rank, at least one
  GradientReducer reducer_;
  std::vector<std::size_t> owner_;  ///< owning rank of each tensor; empty without ZeRO
  RankMemory memory_;
};

}  // namespace fp8lab::train
