#pragma once
// The training loop: batches in their order, forward, backward, clip, AdamW.
// Every bit of a run is a function of its options; threads change speed alone.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/optim/adamw.hpp"
#include "fp8lab/train/data.hpp"
#include "fp8lab/train/mlp.hpp"
#include "fp8lab/train/model.hpp"
#include "fp8lab/train/transformer.hpp"

namespace fp8lab::train {

/// Linear from 0 over `warmup` steps, then a cosine down to `final_share` of the
/// peak at step `steps`, then level.
struct Schedule {
  double peak = 3e-3;
  std::int64_t warmup = 20;
  std::int64_t steps = 300;
  double final_share = 0.1;

  /// The learning rate of step `step` (0 is the first, which is not 0).
  [[nodiscard]] double at(std::int64_t step) const;
};

struct TrainerOptions {
  std::variant<TransformerShape, MlpShape> model = TransformerShape{};
  ModelRecipe recipe;
  AdamWOptions optimizer;  ///< FP32 states unless it says otherwise
  Schedule schedule;
  std::int64_t sequences = 8;  ///< in a batch
  std::int64_t length = 64;    ///< tokens of a sequence; a transformer's own length
  double clip_norm = 1.0;      ///< of the gradient as a whole, L2; 0: none
  double loss_scale = 1.0;     ///< the backward pass runs on loss_scale * loss: a power of two
  std::uint64_t seed = 1;
};

/// Everything in `options` that changes bits, as text.
std::string describe(const TrainerOptions& options);

struct StepRecord {
  std::int64_t step = 0;
  double loss = 0.0;           ///< nats a token, before the update
  double gradient_norm = 0.0;  ///< L2, unscaled, before clipping
  double learning_rate = 0.0;
};

/// Everything that later steps depend on, in memory: optimizer with master
/// weights, what the casts remember, the step. For trainers of the same options and data.
class TrainerSnapshot {
 public:
  [[nodiscard]] std::int64_t step() const { return steps_; }
  /// Of optimizer states, scales and amaxes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class Trainer;
  TrainerSnapshot(const AdamW& optimizer, std::int64_t steps, std::string fingerprint)
      : optimizer_(optimizer), steps_(steps), fingerprint_(std::move(fingerprint)) {}

  AdamW optimizer_;
  std::vector<OperandCast> casts_;  ///< those whose scale comes from earlier tensors
  std::int64_t steps_;
  std::string fingerprint_;
};

class Trainer {
 public:
  /// Throws `Error` for options that do not fit each other or the data.
  Trainer(TrainerOptions options, std::shared_ptr<const DataSource> data);

  /// Runs the next step. A loss that is not finite is reported, not thrown.
  StepRecord step(const PassContext& context);

  /// The halves of a step, for callers that look at gradients or change them
  /// between: `step` is apply_gradients(compute_gradients(steps_done())).
  /// The loss of batch `batch`; leaves its gradients, without the loss scale, in
  /// the model's parameters.
  double compute_gradients(std::int64_t batch, const PassContext& context);
  /// Clips the gradients in the model's parameters and takes the optimizer's step.
  StepRecord apply_gradients(double loss);
  /// Ends the step without an update: its batch is not seen.
  void skip_step() { ++steps_; }

  /// From now on the optimizer holds and updates those parameters alone for which `kept` says so,
  /// in the order of the model's; the caller brings the others' weights (ZeRO with whole
  /// tensors), after `restore` too. Throws `Error` for another number of parameters and after the
  /// first step. Such a trainer has no checkpoint files of its own; `state` is what it holds.
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
  /// Continues from a snapshot to the bits of a run that never left it. Throws
  /// `Error` for one of other options or data.
  void restore(const TrainerSnapshot& snapshot);

  /// Writes a checkpoint (safetensors): weights, optimizer, the amaxes that scales
  /// come from, the step. A crash leaves the old file or the new one, whole.
  void save(const std::filesystem::path& path) const;

  /// Continues from a checkpoint to the bits of a run that never stopped. Throws
  /// `Error` naming the file for one of other options or data.
  void resume(const std::filesystem::path& path);

  /// What a checkpoint holds: the states that the optimizer has, the amaxes that scales come from,
  /// the step. Views, valid until the next step.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// Continues from `state()` of a trainer of the same options, data and kept states. Throws
  /// `Error` naming `where` for what is missing or of another shape.
  void restore_state(const std::string& where, std::span<const NamedTensor> tensors);
  /// Options and data as JSON: what two runs of the same bits agree on.
  [[nodiscard]] std::string fingerprint() const;

 private:
  void require_all_states(std::string_view what) const;
  double clip_gradients();
  void load_weights();

  TrainerOptions options_;
  std::shared_ptr<const DataSource> data_;
  std::unique_ptr<Model<float>> model_;
  std::unique_ptr<AdamW> optimizer_;
  std::vector<Parameter<float>*> updated_;  ///< those whose states the optimizer holds
  std::int64_t steps_ = 0;
};

}  // namespace fp8lab::train
