#pragma once
// Eigen's FP32 matrix product, compiled once for each instruction set: Eigen
// itself chooses at compile time, and a baseline build would be no yardstick.

#include <cstdint>

namespace fp8lab::cli {

/// d [m,n] = a [m,k] times the transpose of b [n,k], all row-major.
using EigenGemm = void (*)(const float* a, const float* b, float* d, std::int64_t m, std::int64_t n,
                           std::int64_t k, int threads);

void eigen_gemm_baseline(const float* a, const float* b, float* d, std::int64_t m, std::int64_t n,
                         std::int64_t k, int threads);
void eigen_gemm_avx2(const float* a, const float* b, float* d, std::int64_t m, std::int64_t n,
                     std::int64_t k, int threads);
void eigen_gemm_avx512(const float* a, const float* b, float* d, std::int64_t m, std::int64_t n,
                       std::int64_t k, int threads);

}  // namespace fp8lab::cli
