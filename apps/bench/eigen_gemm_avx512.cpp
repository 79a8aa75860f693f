#define Eigen Eigen_avx512
#define FP8LAB_EIGEN_GEMM eigen_gemm_avx512
#include "apps/bench/eigen_gemm.inc"
