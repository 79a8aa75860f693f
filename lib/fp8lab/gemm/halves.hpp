#pragma once
// Products under `AccumulationKind::fp16_halves`: the steps of FP16 that the kernels have,
// on copies of the operands, promoted after every instruction.

#include <span>
#include <string_view>

#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::gemm_detail {

/// What `gemm_method` calls it, whatever the method of the steps.
inline constexpr std::string_view kMethodOfHalves = "fp16 halves";

/// Whether the model is `fp16_halves` and kernels have its steps.
bool runs_by_halves(const GemmProblem& problem);

/// D = a validated problem for which that holds, with k > 0, on a vector target; the
/// bits of `gemm_reference`. Holds FP16 copies of A and B (of up to 8 rows: of 128 columns a
/// thread), and where the problem promotes at another interval than every instruction, two more
/// of D. Returns kMethodOfHalves.
std::string_view gemm_by_halves(const GemmProblem& problem, std::span<float> d, Target target,
                                int threads);

}  // namespace fp8lab::gemm_detail
