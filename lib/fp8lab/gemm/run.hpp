#pragma once
// Products that say how they were computed.

#include <span>
#include <string_view>

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// `gemm_with_target`. Returns the method that ran, by the names of `gemm_method`: another one than
/// that gives where the data need it, "reference" on the scalar target and for products of nothing.
/// Of a product in several parts, where C needs them, it is the first part's.
std::string_view run_gemm(const GemmProblem& problem, std::span<float> d, Target target,
                          int threads = 0);

}  // namespace fp8lab
