#pragma once
// Gradients of data-parallel ranks: summed by an all-reduce of the library, scaled as in a real
// system. Specified in docs/specification/collectives.md.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "training/collectives/collectives.hpp"

namespace fp8lab::train {

/// The scale of gradients before their sum. s_g is the minimum over all ranks of
/// max finite / amax of a tensor; a max all-reduce shares the amax.
enum class GradientScaling : std::uint8_t {
  none,       ///< wires wider than FP8
  pre,        ///< s_g / N: gradients are divided by N before the sum
  post,       ///< s_g: gradients are divided by N after the sum
  automatic,  ///< mu s_g: each tensor has a mu, which follows FP8-LM's rule and starts at 1
  shipped,    ///< MS-AMP: a power of two over sqrt(N)
};
std::string_view to_string(GradientScaling scaling);
/// The scaling called `name`, except none. Throws `Error` that names `argument`.
GradientScaling find_gradient_scaling(std::string_view name, std::string_view argument);

struct ReductionOptions {
  int ranks = 1;
  Topology topology = Topology::ring;
  WireFormat wire = kWireFormats[0];
  GradientScaling scaling = GradientScaling::none;  ///< none for wires wider than FP8, only
  AutoScalingOptions auto_scaling = auto_scaling_options(AutoScaling::as_paper);
};

/// Computes the mean gradients of all ranks, tensor by tensor, and its errors and bytes. Every
/// process of the fabric must make the same calls; errors are those of the process of rank 0.
class GradientReducer {
 public:
  /// `tensors`: the number of tensors; each has its own mu. Throws `Error` for a scaling that does
  /// not fit the wire, and for ranks below 1.
  GradientReducer(Fabric& fabric, const ReductionOptions& options, std::size_t tensors);

  /// Replaces gradients by their mean over all ranks, with the same bits on every rank.
  /// `gradients`: one span of `elements` for each rank of this process. `look`: compare the mean
  /// with a binary32 sum. `backend`: computes casts to FP8.
  void reduce(std::size_t tensor, std::size_t elements,
              const std::vector<std::span<float>>& gradients, bool look,
              const Backend& backend = {});

  /// The mean over all ranks: a binary32 sum in rank order, divided in binary64; 0 in a process
  /// without ranks. `values`: one per rank of this process.
  double mean(const std::vector<float>& values);

  [[nodiscard]] double sqnr_db() const;            ///< of the compared means; 0: none
  [[nodiscard]] double underflow_percent() const;  ///< compared means that became zero
  [[nodiscard]] double saturated_percent() const;  ///< elements of all FP8 sums at max finite
  [[nodiscard]] double smallest_mu() const;        ///< automatic: over all tensors, else 1
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_; }  ///< by the rank that sent most
  [[nodiscard]] const ReductionOptions& options() const { return options_; }

  /// The state on which later reductions depend: the scaler of each tensor.
  [[nodiscard]] const std::vector<AutoScaler>& scalers() const { return scalers_; }
  /// Restores the scalers. Throws `Error` for another number of them.
  void set_scalers(const std::vector<AutoScaler>& scalers);

 private:
  RankBuffers summed(const std::vector<std::span<float>>& gradients, std::size_t elements,
                     Topology topology, const Reduction& sum, float scale,
                     CollectiveCounts* counts);
  std::vector<float> exact_mean(const std::vector<std::span<float>>& gradients,
                                std::size_t elements);
  void note_loss(std::span<const float> exact, std::span<const float> got);
  void note_saturation(std::size_t tensor, std::span<const std::byte> codes);

  Fabric& fabric_;
  ReductionOptions options_;
  std::vector<AutoScaler> scalers_;  ///< one a tensor
  PairwiseSum signal_;
  PairwiseSum noise_;
  std::size_t underflowed_ = 0;
  std::size_t looked_at_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t saturated_ = 0;
  std::size_t sums_ = 0;
};

}  // namespace fp8lab::train
