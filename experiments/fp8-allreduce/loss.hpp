#pragma once
// What a collective lost, and what its callers share. Every process of a fabric
// makes the same calls; losses are measured where rank 0 lives and are zero elsewhere.

#include <functional>
#include <span>
#include <vector>

#include "training/collectives/collectives.hpp"

namespace fp8lab::experiments {

struct Loss {
  double relative_l2 = 0.0;
  double sqnr_db = 0.0;
  double underflow_percent = 0.0;  ///< non-zero means that became zero
};

/// Of at least one element.
Loss loss_of(std::span<const double> reference, std::span<const float> got);

/// max finite / amax (TransformerEngine's current scaling).
float scale_of(const WireFormat& wire, float amax);

/// One a rank that this process holds of `ranks`.
std::vector<float> hosted_copies(const Fabric& fabric, int ranks, float value);
std::vector<float> hosted_amaxes(const Fabric& fabric, int ranks,
                                 const std::function<std::span<const float>(int)>& values_of);

/// `value` for every hosted rank, but 2^octaves times that for rank 0.
std::vector<float> first_off(const Fabric& fabric, int ranks, float value, double octaves);

}  // namespace fp8lab::experiments
