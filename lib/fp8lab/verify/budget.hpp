#pragma once
// The allowed distance of each output from the exact result. It is derived from the
// data and the accumulator model; it is not a constant tolerance.

#include <cstdint>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The error budget of one output. Every part is a bound on an absolute error, in
/// the units of D, derived in FP64 from this element's own operands.
struct ErrorBudget {
  double exact = 0.0;         ///< the exact sum of the scaled codes and C
  double quantization = 0.0;  ///< from the quantization of A and B; 0 if they are given as codes
  /// From truncation and rounding in the accumulator, its promotion and the scales.
  double accumulation = 0.0;
  double rounding = 0.0;  ///< half a step of the output format at `exact`
  /// The codes of the smallest and largest output within the budget: the ends of
  /// [exact - errors, exact + errors], cast like the output.
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  /// A NaN or an infinity takes part or may arise: then only the golden code is right.
  bool special = false;

  [[nodiscard]] double total() const { return quantization + accumulation + rounding; }
};

/// The budget of D[row, column]. The bound on accumulation for a fused step: each non-zero
/// product and accumulator may lose one unit 2^(largest exponent - F), and the sum is
/// rounded to M bits. For FP16 halves: the bounds of both steps, where the accumulator of
/// the second is the sum of the first, and half a step of binary32 for the addition of c.
/// The bound holds for any order of the terms of a step (or half), but not for another cut
/// of K into steps.
ErrorBudget error_budget(const Product& product, std::int64_t row, std::int64_t column);

/// Whether a code is within the budget.
bool within(const ErrorBudget& budget, const OutputCast& output, std::uint32_t code);

/// Whether a right output may have this code if the golden code is `golden`: the same code, any NaN
/// for a NaN, or a code within the budget.
bool allowed(const ErrorBudget& budget, const OutputCast& output, std::uint32_t golden,
             std::uint32_t code);

}  // namespace fp8lab
