#define Eigen Eigen_baseline
#define FP8LAB_EIGEN_GEMM eigen_gemm_baseline
#include "apps/bench/eigen_gemm.inc"
