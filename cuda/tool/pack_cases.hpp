#pragma once
// Cases of a probe as the batch that its kernel takes, with block scales where it has them.

#include <span>

#include "probes/instructions.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

/// Packs a multiple of 64 cases, each of as many terms, and scales, as `steps` instructions take.
/// Throws `Error` for other numbers.
TileBatch pack_cases(std::span<const VectorCase> cases, const ProbedInstruction& probe, int steps);

/// What a model gives for a case, with its scales if the probe has any.
float result_of(const AccumulatorModel& model, const ProbedInstruction& probe,
                const VectorCase& one);

}  // namespace fp8lab::cuda
