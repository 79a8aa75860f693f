#pragma once
// NaN and infinities in an output of attention.

#include <cstddef>
#include <span>

#include "fp8lab/attention/judge.hpp"
#include "fp8lab/attention/verify.hpp"

namespace fp8lab {

/// Where a kernel's output has a NaN or infinity for a number, or the other way round, and what in
/// the inputs belongs to it. `elements` are the positions in O, at least one.
AttentionCause non_finite_cause(const AttentionInputs& inputs, const AttentionOptions& options,
                                const OutputJudge& judge, std::span<const std::size_t> elements);

}  // namespace fp8lab
