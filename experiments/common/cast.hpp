#pragma once
// Casts of whole tensors, on the backend that a run has chosen.

#include <span>
#include <vector>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab::experiments {

/// What becomes of each of `scaled` in `f`. Codes of 8-bit formats are those of the
/// chosen backend where that has the cast (gemm/backend.hpp); what a chip does not
/// report, such as overflow, is the library's.
std::vector<CastResult> cast_all(const Format& f, const CastPolicy& policy,
                                 std::span<const float> scaled);

}  // namespace fp8lab::experiments
