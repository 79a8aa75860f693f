// WebAssembly rounds to nearest even and nothing else, and the kernels of gemm/ round toward
// zero: here `gemm` is the reference, whose bits are integer arithmetic.

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

void gemm(const GemmProblem& problem, std::span<float> d, int /*threads*/) {
  gemm_reference(problem, d, 1);
}

}  // namespace fp8lab
