#include "fp8lab/gemm/gemm.hpp"

#include <omp.h>

namespace fp8lab {

void gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm_reference(problem, d, threads > 0 ? threads : omp_get_max_threads());
}

}  // namespace fp8lab
