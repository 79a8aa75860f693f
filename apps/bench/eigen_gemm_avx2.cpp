#define Eigen Eigen_avx2
#define FP8LAB_EIGEN_GEMM eigen_gemm_avx2
#include "apps/bench/eigen_gemm.inc"
