#pragma once
// Casts of whole tensors, on the backend of a run.

#include <span>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// What becomes of each of `scaled` in `f`. Codes of 8-bit formats are those of the
/// backend where that has the cast; what a chip does not report, such as overflow, is
/// the library's.
std::vector<CastResult> cast_all(const Backend& backend, const Format& f, const CastPolicy& policy,
                                 std::span<const float> scaled);

}  // namespace fp8lab::experiments
