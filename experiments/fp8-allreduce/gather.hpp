#pragma once
// Quantized all-gather of sharded weights: cast before they travel, or after.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8-allreduce/loss.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// Weights in shards, one a rank.
struct GatherInput {
  /// N(0, 0.02^2), each shard times 2^(octaves * a normal number).
  GatherInput(const RandomStream& random, std::size_t elements, int ranks, double octaves);

  int ranks;
  std::vector<float> weights;
  [[nodiscard]] std::span<const float> shard(int rank) const;
};

/// Where the cast to FP8 stands, and whose amax makes the scale.
enum class GatherCast : std::uint8_t {
  after,        ///< BF16 travels; each rank casts what it has gathered
  before,       ///< cast with the reduced amax, codes travel
  before_own,   ///< cast with the shard's own amax; codes and scales travel
  before_lost,  ///< as before_own, but the scales are assumed to be the reduced one
};
std::string_view to_string(GatherCast cast);

struct Gathered {
  Loss loss;                     ///< of the dequantized weights, against FP32
  Message codes;                 ///< in FP8, as every rank ends up with them
  std::uint64_t bytes_sent = 0;  ///< by all ranks, scales and amaxes included
};

Gathered gather_weights(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                        GatherCast cast, const Backend& backend = {});

/// gather_weights(before), where rank 0's scale is 2^octaves too large and nobody knows.
Loss gather_with_one_off(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                         double octaves, const Backend& backend = {});

}  // namespace fp8lab::experiments
