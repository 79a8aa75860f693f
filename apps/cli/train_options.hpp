#pragma once
// What `train` reads from the command line, and what a trainer makes of it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models.hpp"
#include "parser.hpp"
#include "training/train/divergence.hpp"
#include "training/train/monitor.hpp"
#include "training/train/parallel_trainer.hpp"
#include "training/train/shadowed_trainer.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::cli {

/// Texts are empty, and numbers unset, where the recipe decides.
struct TrainOptions {
  std::string recipe = "te-current";
  std::vector<std::string> model;  ///< one for FP8 products and one for BF16 products at most
  ModelFiles models;
  std::string format;
  std::optional<std::int64_t> history;
  std::optional<double> margin;
  std::string amax_algorithm;
  std::string rule;
  std::string fprop;  ///< recipe of one product; as are the next two
  std::string dgrad;
  std::string wgrad;
  std::vector<std::string> keep;  ///< parts of names of layers that stay in BF16
  std::optional<double> clip_before_cast;

  std::string optimizer;
  std::string master;
  std::string first_moment;
  std::string second_moment;
  std::string stored_gradient;

  int ranks = 1;
  std::string wire;
  std::string scaling;
  std::string topology;
  bool zero = false;

  std::string text;
  std::string checkpoint;
  std::string log;
  std::string trace;
  train::TransformerShape shape;
  train::Schedule schedule;
  double clip_norm = 1.0;
  double weight_decay = 0.1;
  std::int64_t sequences = 8;
  std::int64_t save_every = 100;
  std::int64_t monitor_every = 10;
  std::string monitor = "default";
  std::optional<double> warn_underflow;
  std::optional<double> warn_overflow;
  std::optional<double> warn_amax_jump;
  std::optional<double> warn_amax;
  std::optional<double> warn_zeros;
  std::optional<double> raise_gradient_scale;
  std::optional<std::int64_t> attribute;  ///< seeds
  std::int64_t outlier_channels = 0;
  int outlier_log2 = 0;
  double loss_scale = 1.0;
  std::optional<std::int64_t> guard;
  std::optional<double> stop_when;
  std::string kill_switch;  ///< an action; empty: no shadow
  std::optional<double> kill_amax_ratio;
  std::optional<double> kill_moment_ratio;
  std::optional<double> kill_loss_gap;
  std::optional<std::int64_t> kill_window;
  std::optional<std::int64_t> kill_patience;
  std::optional<std::int64_t> kill_snapshots;
  std::uint64_t seed = 1;
  int threads = 0;  ///< all
  bool json = false;
};

void add_train_options(Command& command, TrainOptions& o);

/// Throws `Error` for what does not fit together: nothing that was given is ignored.
train::TrainerOptions trainer_options(const TrainOptions& o);

/// Unset for one trainer without wires.
std::optional<train::ParallelOptions> parallel_options(const TrainOptions& o);

/// Unset without --kill-switch.
std::optional<train::ShadowOptions> shadow_options(const TrainOptions& o);

/// `train --attribute`: trains with each part of the arithmetic alone and without it, and prints
/// the gaps to BF16. The exit code.
int run_attribution(const TrainOptions& o);

/// What warns: the preset of --monitor, changed by --warn-...
train::MonitorOptions monitor_options(const TrainOptions& o);

/// Unset without --raise-gradient-scale.
std::optional<train::GradientScaleRule> gradient_scale_rule(const TrainOptions& o);

/// Of the run's losses: `--stop-when`, or one nat.
train::DivergenceOptions divergence_options(const TrainOptions& o);

}  // namespace fp8lab::cli
