#pragma once
// Makes a failing case as small as it can be while it still fails, so that a
// person can read the rule off it.

#include <cstddef>
#include <functional>
#include <optional>

#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

/// True if the inputs of a case (a, b and c; d is to be ignored) still fail.
using FailurePredicate = std::function<bool(const VectorCase&)>;

struct Reduction {
  VectorCase smallest;
  std::size_t tried = 0;  ///< how often `fails` was asked
};

/// Reduces `failing`, whose operands are codes of the two formats.
///
/// Steps, each kept only if the case still fails: drop terms (both operands
/// +0) in runs and then singly, c to +0, operands to 1.0 or to fewer mantissa
/// bits, exponents toward 0, signs to +, bits of c away; repeated until nothing
/// changes or `budget` questions have been asked. `d` of the result is left as
/// it came. Throws `Error` if `failing` does not fail to begin with.
/// Block scales, if the case has them, go to 1.0, or step by step toward it; `scales` is their
/// format.
Reduction reduce_case(const VectorCase& failing, FormatId a_format, FormatId b_format,
                      const FailurePredicate& fails, std::size_t budget = 20000,
                      std::optional<ScaleFormat> scales = std::nullopt);

/// Terms with a non-zero operand.
std::size_t live_terms(const VectorCase& one);

}  // namespace fp8lab
