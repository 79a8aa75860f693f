#include "train_options.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;
constexpr std::int64_t kMostHistory = 1'000'000;
constexpr int kMostRanks = 4096;

void add_recipe_options(Command& command, TrainOptions& o) {
  command
      .add_option("--recipe", o.recipe,
                  "linear recipe: fp32, bf16 or a quantize recipe; or a complete system: fp8-lm "
                  "(products, states, gradients, ZeRO), an ablation of it, bf16-fp32")
      ->capture_default_str();
  command.add_option(
      "--model", o.model,
      "accumulator of the FP8 products, an instruction or a definition; one of BF16 "
      "inputs, such as sm90.wgmma.bf16, is that of the BF16 products: of the recipe, "
      "the head and layers that stay in BF16; a chip (sm89, sm90, sm100, sm120) has "
      "both; may be given again; default: that of the recipe, for BF16 fp32");
  add_models_option(command, o.models);
  command.add_option("--format", o.format,
                     "FP8 format of all operands, e4m3fn or e5m2, or hybrid: e4m3fn with e5m2 "
                     "gradients; default: those of the recipe");
  command.add_option("--history", o.history, "length of the amax history of a delayed scale")
      ->check(between(std::int64_t{1}, kMostHistory));
  command.add_option("--margin", o.margin, "makes a delayed scale smaller by 2^MARGIN")
      ->check(between(-60.0, 60.0));
  command.add_option("--amax-algorithm", o.amax_algorithm,
                     "algorithm of a delayed scale: max or most_recent");
  const std::string product = " runs, casts of both operands and accumulator; default: --recipe";
  command.add_option("--fprop", o.fprop, "recipe under which Y = X W^T" + product);
  command.add_option(
      "--dgrad", o.dgrad,
      "the same of dX = dY W: with --dgrad bf16 --wgrad bf16 the backward pass runs in "
      "BF16");
  command.add_option("--wgrad", o.wgrad, "the same of dW = dY^T X");
  command.add_option(
      "--rule", o.rule,
      "layers that run under the recipe, the head included: llama-factory, deepseek-v3, linear or "
      "all; the others run in BF16; default: the layers of the blocks");
  command.add_option(
      "--keep", o.keep,
      "layers whose names contain this (block0, .down, head) stay in BF16; may be given again");
  command.add_option("--clip-before-cast", o.clip_before_cast,
                     "limits output gradients to this many times their root mean square before "
                     "their FP8 cast");
}

void add_state_options(Command& command, TrainOptions& o) {
  const std::string format =
      ": FORMAT[:none|tensor|group|expanded[:ms_amp|te]], such as e4m3fn:tensor; f32 is stored as "
      "it is";
  command.add_option(
      "--optimizer", o.optimizer,
      "storage formats of a system: fp32, fp8-lm, fp8-lm-fp8-v, ms-amp-o2, coat, ...");
  command.add_option("--master", o.master, "format of the master weights" + format);
  command.add_option("--first-moment", o.first_moment, "format of Adam's m" + format);
  command.add_option("--second-moment", o.second_moment, "format of Adam's v" + format);
  command.add_option("--stored-gradient", o.stored_gradient,
                     "format of the gradient that the optimizer reads" + format);
  command
      .add_option("--clip-norm", o.clip_norm,
                  "L2 norm to which the whole gradient is clipped before the optimizer casts it; "
                  "0: no clipping")
      ->capture_default_str();
  command.add_option("--weight-decay", o.weight_decay, "decoupled")->capture_default_str();
}

void add_rank_options(Command& command, TrainOptions& o) {
  command.add_option("--ranks", o.ranks, "data-parallel ranks, each with --sequences per step")
      ->check(between(1, kMostRanks))
      ->capture_default_str();
  command.add_option("--wire", o.wire,
                     "format of the gradients' all-reduce: f32, bf16, f16, e4m3fn, e5m2");
  command.add_option("--gradient-scaling", o.scaling,
                     "scaling for an FP8 wire: auto (FP8-LM), pre, post, shipped (MS-AMP)");
  command.add_option("--topology", o.topology, "topology of the all-reduce: ring, tree, direct");
  command.add_flag("--zero", o.zero, "keep the states of each tensor on one rank");
}

void add_run_options(Command& command, TrainOptions& o) {
  command.add_option("--text", o.text,
                     "file whose bytes are the training text; default: a synthetic language");
  command.add_option("--checkpoint", o.checkpoint,
                     "checkpoint file: continued if it exists, updated during the run");
  command.add_option("--save-every", o.save_every, "steps between checkpoints")
      ->check(between(std::int64_t{1}, kMostSteps))
      ->capture_default_str();
  command.add_option("--log", o.log,
                     "JSON lines: casts of monitored steps, loss of every step; a resumed run "
                     "replaces the rows of the steps that it repeats");
  command.add_option(
      "--trace", o.trace,
      "safetensors file of all activations, weights and gradients before their casts, "
      "at the first, the middle and the last step; experiments read "
      "FILE#step0/block0.qkv.activation");
  command.add_option("--monitor-every", o.monitor_every, "steps between measurements of the casts")
      ->check(between(std::int64_t{1}, kMostSteps))
      ->capture_default_str();
  command
      .add_option("--guard", o.guard,
                  "steps between snapshots, which are restored after a step with NaN or Inf")
      ->check(between(std::int64_t{1}, kMostSteps));
  command
      .add_option("--stop-when", o.stop_when,
                  "end the run, with exit code 1, once the mean of ten losses is this many nats "
                  "above its lowest; default: decided at the end, at 1 nat")
      ->check(above_zero());
}

void add_monitor_options(Command& command, TrainOptions& o) {
  command
      .add_option(
          "--monitor", o.monitor,
          "thresholds of warnings: default, or guide, which warns of more than 50 % zeros and "
          "of an amax above 448")
      ->capture_default_str();
  const auto above = [&](const char* name, std::optional<double>& value, const char* what) {
    command.add_option(name, value, std::string("warn above this: ") + what)->check(above_zero());
  };
  above("--warn-underflow", o.warn_underflow, "percent of a tensor that becomes zero in its cast");
  above("--warn-overflow", o.warn_overflow, "percent that is rounded above the largest number");
  above("--warn-amax-jump", o.warn_amax_jump,
        "amax over the largest of the last 16 monitored steps");
  above("--warn-amax", o.warn_amax, "amax of a tensor before its cast");
  above("--warn-zeros", o.warn_zeros, "percent of zeros after the cast");
  command
      .add_option("--raise-gradient-scale", o.raise_gradient_scale,
                  "double the loss scale at each monitored step in which more than this percent of "
                  "the gradients become zero in their casts; halve it where 0.1 % overflow")
      ->check(between(0.0, 100.0));
}

void add_kill_options(Command& command, TrainOptions& o) {
  command.add_option(
      "--kill-switch", o.kill_switch,
      "stop, roll-back or bf16: what to do once gradient amax, second moment or loss "
      "depart from those of a BF16 run on the same batches, which runs beside this "
      "one; exit code 1 if the run ends there");
  command
      .add_option("--kill-amax-ratio", o.kill_amax_ratio,
                  "alarm beyond this ratio of the gradients' amax, or its inverse; default: 2")
      ->check(above_zero());
  command
      .add_option("--kill-moment-ratio", o.kill_moment_ratio,
                  "the same of the mean second moment; default: 2")
      ->check(above_zero());
  command.add_option("--kill-loss-gap", o.kill_loss_gap,
                     "alarm above this many nats over the BF16 run's loss; default: 0.01");
  command
      .add_option("--kill-window", o.kill_window,
                  "steps over which figures are averaged; default: 10")
      ->check(between(std::int64_t{1}, kMostSteps));
  command
      .add_option("--kill-patience", o.kill_patience,
                  "steps in a row beyond a threshold that make an alarm; default: 5")
      ->check(between(std::int64_t{1}, kMostSteps));
  command
      .add_option("--kill-snapshots", o.kill_snapshots,
                  "steps between the states to which roll-back and bf16 return; default: 10")
      ->check(between(std::int64_t{1}, kMostSteps));
}

void add_attribution_options(Command& command, TrainOptions& o) {
  command
      .add_option(
          "--attribute", o.attribute,
          "instead of one run, this many seeds of the run, of BF16 runs in which one product "
          "or the states alone are the run's, and of the run without one of them or with "
          "exact sums; prints how much loss each has above BF16")
      ->check(between(std::int64_t{1}, std::int64_t{1000}));
}

void add_shape_options(Command& command, TrainOptions& o) {
  const auto number = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->capture_default_str();
  };
  number("--steps", o.schedule.steps, "steps of the whole run");
  number("--warmup", o.schedule.warmup, "steps during which the learning rate rises");
  number("--learning-rate", o.schedule.peak, "peak learning rate");
  number("--vocabulary", o.shape.vocabulary, "tokens; 256 for --text");
  number("--width", o.shape.width, "channels");
  number("--layers", o.shape.layers, "transformer blocks");
  number("--heads", o.shape.heads, "attention heads");
  number("--hidden", o.shape.hidden, "feed-forward channels");
  number("--length", o.shape.length, "tokens of a sequence");
  number("--sequences", o.sequences, "sequences of a step");
  number("--outlier-channels", o.outlier_channels, "number of feature channels that are scaled up");
  command
      .add_option("--outlier-log2", o.outlier_log2,
                  "log2 of the factor by which --outlier-channels are scaled")
      ->check(between(-60, 60))
      ->capture_default_str();
  number("--loss-scale", o.loss_scale, "a power of two");
  number("--seed", o.seed, "seed of weights and data");
}

}  // namespace

void add_train_options(Command& command, TrainOptions& o) {
  add_recipe_options(command, o);
  add_state_options(command, o);
  add_rank_options(command, o);
  add_run_options(command, o);
  add_monitor_options(command, o);
  add_kill_options(command, o);
  add_attribution_options(command, o);
  add_shape_options(command, o);
  command.add_option("--threads", o.threads, "threads; results do not depend on their number")
      ->check(between(1, kMostThreads));
  command.add_flag("--json", o.json, "machine-readable output");
}

}  // namespace fp8lab::cli
