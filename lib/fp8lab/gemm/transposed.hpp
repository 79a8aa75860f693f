#pragma once
// D = A . B^T as (B . A^T)^T: kernels read few rows of A faster than few of B.

#include <span>
#include <string_view>

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::gemm_detail {

/// Whether the turned product has the same bits and so few rows that it is the faster one.
bool runs_turned(const GemmProblem& problem);

/// `run_gemm` of the turned product, for a valid problem; returns what that returns.
std::string_view gemm_turned(const GemmProblem& problem, std::span<float> d, Target target,
                             int threads);

}  // namespace fp8lab::gemm_detail
