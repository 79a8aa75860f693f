#pragma once
// How far an output may be from the exact result, element by element, from the
// data and the accumulator model: never a constant tolerance.

#include <cstdint>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The error budget of one output. Every part is a bound on an absolute error, in
/// the units of D, derived in FP64 from this element's own operands.
struct ErrorBudget {
  double exact = 0.0;         ///< the exact sum of the codes and C, each scaled as it enters
  double quantization = 0.0;  ///< what quantizing A and B can move it; 0 where they came as codes
  /// What truncation and rounding inside the accumulator, its promotion and the scales can.
  double accumulation = 0.0;
  double rounding = 0.0;  ///< half a step of the output format at `exact`
  /// The codes of the smallest and largest output that lie within: the ends of
  /// [exact - errors, exact + errors], cast as the output is.
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  /// A NaN or an infinity takes part, or may arise on the way: only the golden code is right.
  bool special = false;

  [[nodiscard]] double total() const { return quantization + accumulation + rounding; }
};

/// The budget of D[row, column]. The bound on accumulation, for a fused step: of
/// each step's products and accumulator every non-zero one may lose one unit
/// 2^(largest exponent - F), and the sum is rounded to M bits. By FP16 halves, both steps'
/// bounds, the second one's with the first one's sum as its accumulator, and half a step of
/// binary32 for adding c. It holds for the terms of a step (of a half) in any order, not
/// for another cut of K into steps.
ErrorBudget error_budget(const Product& product, std::int64_t row, std::int64_t column);

/// Whether a code lies in the budget.
bool within(const ErrorBudget& budget, const OutputCast& output, std::uint32_t code);

/// Whether a right output may have this code where the golden one has `golden`: the same, any NaN
/// for a NaN, or one within the budget.
bool allowed(const ErrorBudget& budget, const OutputCast& output, std::uint32_t golden,
             std::uint32_t code);

}  // namespace fp8lab
