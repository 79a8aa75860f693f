#pragma once
// The mean gradient of all ranks by an all-reduce, under each way to scale it.

#include <cstdint>
#include <string_view>
#include <vector>

#include "auto-scaling/reduction.hpp"
#include "fp8-allreduce/loss.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// How FP8 gradients are scaled before their sum. s_g = min over ranks of
/// max finite / amax, shared by a max all-reduce of the amax.
enum class ReduceScaling : std::uint8_t {
  none,            ///< wires wider than FP8
  unified,         ///< s_g
  unified_over_n,  ///< s_g / N: the sum cannot saturate
  requantized,     ///< cast with the rank's own scale first, then requantized to s_g (FP8-LM)
  shipped,         ///< MS-AMP: a power of two over sqrt(N)
};
std::string_view to_string(ReduceScaling scaling);
ReduceScaling find_reduce_scaling(std::string_view name);

/// Gradients with the exact mean that their reduction should give.
struct ReduceInput {
  ReduceInput(const RandomStream& random, const GradientShape& shape, int ranks);

  Gradients gradients;
  std::vector<double> mean;  ///< FP64
};

struct Reduced {
  Loss loss;
  double saturated_percent = 0.0;  ///< of all additions; direct: of its final casts
  CollectiveCounts counts;         ///< of the reduction
  CollectiveCounts scale_counts;   ///< of the exchange of amaxes or scales
};

/// The mean gradient by an all-reduce of `wire`.
Reduced reduce_mean(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                    Topology topology, ReduceScaling scaling, const Backend& backend = {});

/// The same with unified-over-n scales of which rank 0's alone is 2^octaves too
/// large, while all assume that it is not: a rank that missed an amax reduction.
Loss reduce_with_one_off(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                         Topology topology, double octaves, const Backend& backend = {});

/// The same where every rank uses the scale of its own amax over N, and the sum is read
/// with the unified one.
Loss reduce_without_agreement(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                              Topology topology, const Backend& backend = {});

}  // namespace fp8lab::experiments
