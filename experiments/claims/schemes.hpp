#pragma once
// What claim A1 asks of the three ways to scale gradients before their sum.

#include <vector>

#include "auto-scaling/schemes.hpp"

namespace fp8lab::experiments {

/// What one draw of gradients says at one number of ranks.
struct SchemeLosses {
  ReductionLoss pre, post, automatic;
};

/// What the criterion asks, over all draws and ranks.
struct SchemeVerdict {
  bool pre_underflows = true;    ///< at some number of ranks, in every draw
  bool post_overflows = true;    ///< the same
  bool auto_underflows = false;  ///< anywhere
  bool auto_overflows = false;   ///< anywhere
};

/// Of one draw.
SchemeVerdict judge_draw(const std::vector<SchemeLosses>& by_ranks);

}  // namespace fp8lab::experiments
