#pragma once
// The training loop: batches in order, forward, backward, clip, AdamW. Every bit
// of a run is a function of its options. Threads change only the speed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "training/optim/adamw.hpp"
#include "training/train/data.hpp"
#include "training/train/mlp.hpp"
#include "training/train/model.hpp"
#include "training/train/transformer.hpp"

namespace fp8lab::train {

/// The learning rate: linear from 0 over `warmup` steps, then a cosine down to
/// `final_share` of the peak at step `steps`, then constant.
struct Schedule {
  double peak = 3e-3;
  std::int64_t warmup = 20;
  std::int64_t steps = 300;
  double final_share = 0.1;

  /// The learning rate of step `step`, from 0. That of step 0 is positive.
  [[nodiscard]] double at(std::int64_t step) const;
};

struct TrainerOptions {
  std::variant<TransformerShape, MlpShape> model = TransformerShape{};
  ModelRecipe recipe;
  AdamWOptions optimizer;  ///< FP32 states by default
  Schedule schedule;
  std::int64_t sequences = 8;  ///< in a batch
  std::int64_t length = 64;    ///< tokens of a sequence; must be the length of a transformer
  double clip_norm = 1.0;      ///< limit of the L2 norm of the whole gradient; 0: none
  double loss_scale = 1.0;     ///< the backward pass runs on loss_scale * loss: a power of two
  std::uint64_t seed = 1;
};

/// All options that change bits, as text.
std::string describe(const TrainerOptions& options);

struct StepRecord {
  std::int64_t step = 0;
  double loss = 0.0;           ///< nats per token, before the update
  double gradient_norm = 0.0;  ///< L2, unscaled, before clipping
  double learning_rate = 0.0;
};

/// The complete state of a trainer, in memory: optimizer with master weights, the
/// amaxes of the casts, the step. For trainers with the same options and data.
class TrainerSnapshot {
 public:
  [[nodiscard]] std::int64_t step() const { return steps_; }
  /// Bytes of optimizer states, scales and amaxes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class Trainer;
  TrainerSnapshot(const AdamW& optimizer, std::int64_t steps, std::string fingerprint)
      : optimizer_(optimizer), steps_(steps), fingerprint_(std::move(fingerprint)) {}

  AdamW optimizer_;
  std::vector<OperandCast> casts_;  ///< casts whose scale comes from earlier tensors
  std::int64_t steps_;
  std::string fingerprint_;
};

class Trainer {
 public:
  /// Throws `Error` for options that contradict each other or the data.
  Trainer(TrainerOptions options, std::shared_ptr<const DataSource> data);

  /// Runs the next step. A loss that is not finite is returned; it is no error.
  StepRecord step(const PassContext& context);

  /// The two halves of a step, for callers that read or change gradients between
  /// them: `step` is apply_gradients(compute_gradients(steps_done())).
  /// Returns the loss of batch `batch` and stores its gradients, without the loss
  /// scale, in the model's parameters.
  double compute_gradients(std::int64_t batch, const PassContext& context);
  /// Clips the gradients in the model's parameters and runs the optimizer step.
  StepRecord apply_gradients(double loss);
  /// Ends the step without an update: its batch is not used.
  void skip_step() { ++steps_; }
  /// Sets the loss scale of the next step. Neither snapshots nor checkpoints hold it. Throws
  /// `Error` unless it is a power of two.
  void set_loss_scale(double scale);

  /// Limits the optimizer to the parameters for which `kept` is true, in the order of the model.
  /// The caller must set the weights of the others, also after `restore` (ZeRO with whole
  /// tensors). Throws `Error` for another number of parameters, and after the first step. Such a
  /// trainer cannot write checkpoint files; `state` returns the states that it has.
  void keep_states(const std::vector<bool>& kept);

  [[nodiscard]] std::int64_t steps_done() const { return steps_; }
  [[nodiscard]] std::int64_t tokens_per_step() const {
    return options_.sequences * options_.length;
  }
  [[nodiscard]] std::int64_t parameter_count() const;
  [[nodiscard]] const TrainerOptions& options() const { return options_; }
  [[nodiscard]] Model<float>& model() { return *model_; }
  [[nodiscard]] const AdamW& optimizer() const { return *optimizer_; }

  [[nodiscard]] TrainerSnapshot snapshot() const;
  /// Restores a snapshot. All later steps have the bits of an uninterrupted run. Throws
  /// `Error` for a snapshot with other options or data.
  void restore(const TrainerSnapshot& snapshot);

  /// Writes a checkpoint (safetensors): weights, optimizer, the amaxes of the scales,
  /// the step. The write is atomic: a crash leaves the old or the new file.
  void save(const std::filesystem::path& path) const;

  /// Restores a checkpoint. All later steps have the bits of an uninterrupted run. Throws
  /// `Error` that names the file for a checkpoint with other options or data.
  void resume(const std::filesystem::path& path);

  /// The content of a checkpoint: the states of the optimizer, the amaxes of the scales, the step.
  /// These are views, valid until the next step.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// Restores `state()` of a trainer with the same options, data and kept states. Throws `Error`
  /// that names `where` for tensors that are missing or have another shape.
  void restore_state(const std::string& where, std::span<const NamedTensor> tensors);
  /// Takes over the weights, moments and step of a trainer of the same model, as the values that
  /// its next step would read. Recipes and formats of states may differ; the casts begin without a
  /// past. Throws `Error` for another model, and unless all states of this trainer are FP32.
  void take_over(const Trainer& other);
  /// Options and data as JSON. Runs with the same bits have the same fingerprint.
  [[nodiscard]] std::string fingerprint() const;

 private:
  void require_all_states(std::string_view what) const;
  double clip_gradients();
  void load_weights();

  TrainerOptions options_;
  std::shared_ptr<const DataSource> data_;
  std::unique_ptr<Model<float>> model_;
  std::unique_ptr<AdamW> optimizer_;
  std::vector<Parameter<float>*> updated_;  ///< parameters whose states the optimizer has
  std::int64_t steps_ = 0;
};

}  // namespace fp8lab::train
