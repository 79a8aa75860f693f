#define Eigen Eigen_baseline
#define FP8LAB_EIGEN_GEMM eigen_gemm_baseline
#include "eigen_gemm.inc"
