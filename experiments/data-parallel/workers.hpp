#pragma once
// Data-parallel training: every rank has a model and an optimizer of its own and
// sees its own batches; gradients meet in an all-reduce of the library.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fp8lab/collectives/collectives.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {

/// How gradients are scaled before their sum. s_g = min over ranks of
/// max finite / amax of a tensor, shared by a max all-reduce of the amax.
enum class GradientScaling : std::uint8_t {
  none,       ///< wires wider than FP8
  pre,        ///< s_g / N: gradients are divided by N before the sum
  post,       ///< s_g: they are divided after it
  automatic,  ///< mu s_g, a mu for each tensor that follows FP8-LM's rule, from 1
  shipped,    ///< MS-AMP: a power of two over sqrt(N)
};
std::string_view to_string(GradientScaling scaling);
/// One of the last four. Throws `Error`.
GradientScaling find_gradient_scaling(std::string_view name);

struct ParallelOptions {
  int workers = 1;
  Topology topology = Topology::ring;
  WireFormat wire = kWireFormats[0];
  GradientScaling scaling = GradientScaling::none;
};

struct ParallelRun {
  std::vector<double> losses;      ///< mean over the workers, one a step
  double underflow_percent = 0.0;  ///< mean gradients that became zero, of all elements
  double saturated_percent = 0.0;  ///< elements of the sums at max finite
  double sqnr_db = 0.0;            ///< mean gradients against those of FP32 wires
  double smallest_mu = 1.0;        ///< automatic: at the end
  double bytes_per_step = 0.0;     ///< sent by the busiest rank for gradients
  std::int64_t parameters = 0;
};

/// Trains `variant` on `fabric`. Worker r of N takes batch step N + r; weights start equal and
/// stay so, since all ranks end an all-reduce with the same bytes. Underflow and
/// SQNR are those of `settings.samples` steps. Every process of the fabric makes
/// the same call; results are complete where rank 0 lives. FP8 casts of the
/// blocks keep to their rank: amaxes are not shared (*chosen*; TransformerEngine shares them).
ParallelRun train_parallel(Fabric& fabric, const StudySettings& settings, const Variant& variant,
                           const ParallelOptions& options, std::uint64_t seed);

}  // namespace fp8lab::experiments
