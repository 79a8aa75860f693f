#pragma once
// A problem as methods look at it, before its data: formats, model, sizes.

#include <cstdint>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"

namespace fp8lab::gemm_detail {

struct MethodRequest {
  /// Holds references: the problem outlives the request.
  explicit MethodRequest(const GemmProblem& product);

  const GemmProblem& problem;
  const Format* a;
  const Format* b;
  /// Formats that hold all values of the operands: narrower ones than theirs where these are
  /// copies.
  const Format* a_values;
  const Format* b_values;
  Arithmetic arithmetic;  ///< of steps whose scales are packed with the operands: fused steps
  bool scaled = false;    ///< such steps

  [[nodiscard]] const AccumulatorModel& model() const { return problem.model; }
  /// Whether fused steps end as kernels can end them: truncated to binary32, or to nearest even of
  /// FP16.
  [[nodiscard]] bool truncates() const;
  [[nodiscard]] bool rounds_to_half() const;
  [[nodiscard]] bool half_output() const { return problem.model.output_format == FormatId::f16; }
  /// Steps of fused arithmetic that kernels have: exponents as stored, signs in one word.
  [[nodiscard]] bool has_fused_steps() const;
  /// For sums that take one product after the other: the widest step of at most so many
  /// terms that promotion never interrupts.
  [[nodiscard]] std::int64_t plain_terms(std::int64_t most = 32) const;
};

/// What kernels of fused and of exact steps want to know, biased as binary32 or binary64.
StepRounding step_rounding(const AccumulatorModel& model, bool in_double);

/// The smallest exponent that a c which is not zero brings to an alignment.
int smallest_c_exponent(const AccumulatorModel& model);

/// To how many fraction bits products are rounded; negative where they have no more.
int rounded_product_bits(const MethodRequest& request);

}  // namespace fp8lab::gemm_detail
