#pragma once
// Products whose C enters where the kernels have no place for it: computed as
// products that they have, and FP32 arithmetic.

#include <span>
#include <string_view>

#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::gemm_detail {

/// Where the kernels take C along: what the problem's one sum starts from (the accumulator,
/// or with promotion the promoted sum), or the epilogue where that applies scales.
CPlacement passing_place(const GemmProblem& problem);

/// C enters there, or there is none.
bool enters_in_passing(const GemmProblem& problem);

/// The product of a problem whose C does not. Returns the method of its first part.
std::string_view gemm_with_c(const GemmProblem& problem, std::span<float> d, Target target,
                             int threads);

}  // namespace fp8lab::gemm_detail
