#pragma once
// Data-parallel training: every rank has a model and an optimizer of its own and
// sees its own batches; gradients meet in an all-reduce of the library.

#include <cstdint>
#include <string_view>
#include <vector>

#include "train/study.hpp"
#include "training/train/parallel_trainer.hpp"

namespace fp8lab::experiments {

using train::find_gradient_scaling;
using train::GradientScaling;
using train::to_string;

struct ParallelRun {
  std::vector<double> losses;      ///< mean over the workers, one a step
  double underflow_percent = 0.0;  ///< mean gradients that became zero, of all elements
  double saturated_percent = 0.0;  ///< elements of the sums at max finite
  double sqnr_db = 0.0;            ///< mean gradients against those of FP32 wires
  double smallest_mu = 1.0;        ///< automatic: at the end
  double bytes_per_step = 0.0;     ///< sent by the busiest rank for gradients
  std::int64_t parameters = 0;
  std::int64_t state_bytes = 0;  ///< of the fullest rank: master weights, moments, scales
};

/// Trains `variant` on `fabric` with `train::ParallelTrainer`. Underflow and SQNR are those of
/// `settings.samples` steps. Every process of the fabric makes the same call; results are
/// complete where rank 0 lives.
ParallelRun train_parallel(Fabric& fabric, const StudySettings& settings, const Variant& variant,
                           const train::ParallelOptions& options, std::uint64_t seed);

}  // namespace fp8lab::experiments
