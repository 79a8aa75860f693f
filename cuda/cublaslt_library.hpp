#pragma once
// cuBLASLt, loaded when it is first asked for: half a gigabyte that only the search
// and two benchmarks need, and that a machine with nothing but a driver does not have.

#include <cublasLt.h>

#include <string>

namespace fp8lab::cuda {

/// Every function that this tool calls.
#define FP8LAB_LT_FUNCTIONS(X)            \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtGetStatusName)                \
  X(cublasLtGetStatusString)              \
  X(cublasLtGetVersion)                   \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoConfigGetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)

struct LtLibrary {
#define FP8LAB_LT_MEMBER(name) decltype(&::name) name = nullptr;
  FP8LAB_LT_FUNCTIONS(FP8LAB_LT_MEMBER)
#undef FP8LAB_LT_MEMBER
  std::string file;     ///< what was loaded
  std::string missing;  ///< why there is none; empty if there is
};

/// The library if it is there: FP8LAB_CUBLASLT names its file, else it is looked for as the system
/// looks for libraries (LD_LIBRARY_PATH), in CUDA_HOME and in /usr/local/cuda; the headers' major
/// version first, then the ones beside it.
const LtLibrary& find_lt_library();

/// The same; throws `NoDevice` that says what to install where it is missing.
const LtLibrary& lt();

}  // namespace fp8lab::cuda
