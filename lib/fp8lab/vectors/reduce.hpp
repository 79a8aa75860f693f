#pragma once
// Reduces a failing case to a small one that still fails, so that a person can see
// the rule in it.

#include <cstddef>
#include <functional>
#include <optional>

#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

/// Returns true if the inputs of a case (a, b and c) still fail. It must ignore d.
using FailurePredicate = std::function<bool(const VectorCase&)>;

struct ReducedCase {
  VectorCase smallest;
  std::size_t tried = 0;  ///< number of calls of `fails`
};

/// Reduces `failing`, whose operands are codes of the two formats.
///
/// Each step is kept only if the case still fails: remove terms (both operands +0)
/// in runs and then singly, set c to +0, operands to 1.0 or to fewer mantissa
/// bits, exponents toward 0, signs to +, clear bits of c. The steps are repeated
/// until nothing changes or `fails` has been called `budget` times. `d` is not
/// changed. Block scales, if the case has them, become 1.0 or move toward it;
/// `scales` is their format. Throws `Error` if `failing` does not fail at the
/// start.
ReducedCase reduce_case(const VectorCase& failing, FormatId a_format, FormatId b_format,
                        const FailurePredicate& fails, std::size_t budget = 20000,
                        std::optional<ScaleFormat> scales = std::nullopt);

/// The number of terms with a non-zero operand.
std::size_t live_terms(const VectorCase& one);

}  // namespace fp8lab
