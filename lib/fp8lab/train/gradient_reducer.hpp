#pragma once
// Gradients of data-parallel ranks, summed by an all-reduce of the library and scaled as a system
// does it. Specified in docs/specification/collectives.md.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/collectives/collectives.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"

namespace fp8lab::train {

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
/// One of the last four, for the argument `argument`. Throws `Error`.
GradientScaling find_gradient_scaling(std::string_view name, std::string_view argument);

struct ReductionOptions {
  int ranks = 1;
  Topology topology = Topology::ring;
  WireFormat wire = kWireFormats[0];
  GradientScaling scaling = GradientScaling::none;  ///< not none for FP8 wires, and for these alone
  AutoScalingOptions auto_scaling = auto_scaling_options(AutoScaling::as_paper);
};

/// Means of the gradients of all ranks, tensor by tensor, and what that cost. Every process of
/// the fabric makes the same calls; losses are those where rank 0 lives.
class GradientReducer {
 public:
  /// `tensors`: how many there are; each has a mu of its own. Throws `Error` for a scaling that
  /// does not fit the wire and ranks below 1.
  GradientReducer(Fabric& fabric, const ReductionOptions& options, std::size_t tensors);

  /// `gradients`: one a rank that this process holds, of `elements` each; they become the mean over
  /// all ranks, the same bits everywhere. `look`: compares it with a sum in binary32.
  /// `backend`: of casts to FP8.
  void reduce(std::size_t tensor, std::size_t elements,
              const std::vector<std::span<float>>& gradients, bool look,
              const Backend& backend = {});

  /// One binary32 sum in rank order over all ranks, divided by their number in binary64; 0 in a
  /// process without ranks. `values`: one a hosted rank.
  double mean(const std::vector<float>& values);

  [[nodiscard]] double sqnr_db() const;            ///< of what was looked at; 0: nothing was
  [[nodiscard]] double underflow_percent() const;  ///< of it: means that became zero
  [[nodiscard]] double saturated_percent() const;  ///< elements of all FP8 sums at max finite
  [[nodiscard]] double smallest_mu() const;        ///< automatic: of all tensors now, else 1
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_; }  ///< by the busiest rank
  [[nodiscard]] const ReductionOptions& options() const { return options_; }

  /// What later reductions depend on: the scaler of each tensor. Counts and errors are none of it.
  [[nodiscard]] const std::vector<AutoScaler>& scalers() const { return scalers_; }
  /// Goes on with these. Throws `Error` for another number of them.
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
