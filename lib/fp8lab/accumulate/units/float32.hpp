#pragma once
// The bound of binary32 additions one after the other, which fused multiply-adds share.

#include <span>

#include "fp8lab/accumulate/bound.hpp"
#include "fp8lab/accumulate/model.hpp"

namespace fp8lab::accumulate_detail {

void bound_float32(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                   BoundedSum& sum);

}  // namespace fp8lab::accumulate_detail
