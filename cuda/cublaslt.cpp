#include "cublaslt.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "cublaslt_library.hpp"
#include "lt_operand_c.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr bool kHasScaleModes = CUBLAS_VERSION >= 120900;

cudaDataType_t data_type(FormatId id) {
  switch (id) {
    case FormatId::e4m3fn:
      return CUDA_R_8F_E4M3;
    case FormatId::e5m2:
      return CUDA_R_8F_E5M2;
    case FormatId::bf16:
      return CUDA_R_16BF;
    case FormatId::f16:
      return CUDA_R_16F;
    case FormatId::f32:
      return CUDA_R_32F;
    default:
      throw Error("format", "e4m3fn, e5m2, bf16, f16 or f32", format(id).name);
  }
}

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  FP8LAB_CUDA_CHECK(
      lt().cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

/// A refusal is an answer, every other failure an error. Which of the two statuses
/// a combination of scales gets has changed between versions.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(call, file, line, lt().cublasLtGetStatusString(status),
         lt().cublasLtGetStatusName(status));
}

// cuBLASLt is column-major: D^T [n,m] = B [n,k] . A^T, so B comes first and
// both operands are given with K contiguous.
LtGemm::LtGemm(const LtProblem& problem) : problem_(problem), workspace_(kWorkspaceBytes) {
  const auto m = static_cast<std::uint64_t>(problem.m);
  const auto n = static_cast<std::uint64_t>(problem.n);
  const auto k = static_cast<std::uint64_t>(problem.k);
  const bool wide = problem.a_format == FormatId::bf16;
  FP8LAB_CUDA_CHECK(lt().cublasLtCreate(&handle_));
  FP8LAB_CUDA_CHECK(lt().cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  if (!wide)
    set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
        static_cast<std::int8_t>(problem.fast_accumulation ? 1 : 0));
  FP8LAB_CUDA_CHECK(lt().cublasLtMatrixLayoutCreate(&b_layout_, data_type(problem.b_format), k, n,
                                                    static_cast<std::int64_t>(k)));
  FP8LAB_CUDA_CHECK(lt().cublasLtMatrixLayoutCreate(&a_layout_, data_type(problem.a_format), k, m,
                                                    static_cast<std::int64_t>(k)));
  const FormatId d_format = wide ? FormatId::bf16 : problem.d_format;
  c_ = lt_operand_c(d_format);
  FP8LAB_CUDA_CHECK(lt().cublasLtMatrixLayoutCreate(&c_layout_, data_type(c_.format), n, m,
                                                    static_cast<std::int64_t>(n)));
  FP8LAB_CUDA_CHECK(lt().cublasLtMatrixLayoutCreate(&d_layout_, data_type(d_format), n, m,
                                                    static_cast<std::int64_t>(n)));
  set_scale_modes();
  // What is chosen may depend on there being scales: any place stands for them until `run`.
  const auto* somewhere = reinterpret_cast<const float*>(workspace_.data());
  if (!wide) set_scales(somewhere, somewhere);
  if (supported()) choose_kernel();
}

LtGemm::~LtGemm() {
  // Destruction cannot report, and these only free host memory.
  lt().cublasLtMatrixLayoutDestroy(d_layout_);
  lt().cublasLtMatrixLayoutDestroy(c_layout_);
  lt().cublasLtMatrixLayoutDestroy(a_layout_);
  lt().cublasLtMatrixLayoutDestroy(b_layout_);
  lt().cublasLtMatmulDescDestroy(operation_);
  lt().cublasLtDestroy(handle_);
}

void LtGemm::set_scale_modes() {
  if (problem_.scales == LtScales::per_tensor) return;
#if CUBLAS_VERSION >= 120900
  const bool rowwise = problem_.scales == LtScales::rowwise;
  const cublasLtMatmulMatrixScale_t a_mode = rowwise ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                                     : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  const cublasLtMatmulMatrixScale_t b_mode = rowwise ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                                     : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, b_mode);
  set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, a_mode);
#endif
  if (!kHasScaleModes) reason_ = "scale modes came with CUDA 12.9";
}

// The library's A is our B.
void LtGemm::set_scales(const float* scale_a, const float* scale_b) {
  set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_b);
  set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_a);
}

void LtGemm::choose_kernel() {
  cublasLtMatmulPreference_t preference = nullptr;
  FP8LAB_CUDA_CHECK(lt().cublasLtMatmulPreferenceCreate(&preference));
  const std::size_t bytes = kWorkspaceBytes;
  FP8LAB_CUDA_CHECK(lt().cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
  if (!problem_.may_split_k) {
    const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    FP8LAB_CUDA_CHECK(lt().cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      lt().cublasLtMatmulAlgoGetHeuristic(handle_, operation_, b_layout_, a_layout_, c_layout_,
                                          d_layout_, preference, 1, &found, &count);
  FP8LAB_CUDA_CHECK(lt().cublasLtMatmulPreferenceDestroy(preference));
  if (status == CUBLAS_STATUS_SUCCESS && count == 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED);
  if (is_refusal(status)) return refuse(status);
  FP8LAB_CUDA_CHECK(status);
  algorithm_ = found.algo;
}

template <typename T>
std::optional<T> LtGemm::setting(cublasLtMatmulAlgoConfigAttributes_t attribute) const {
  T value{};
  std::size_t written = 0;
  // Not every kernel tells everything about itself, and nothing hangs on it.
  if (lt().cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, attribute, &value, sizeof value,
                                                &written) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return value;
}

int LtGemm::split_k() const {
  return setting<std::int32_t>(CUBLASLT_ALGO_CONFIG_SPLITK_NUM).value_or(1);
}

std::string LtGemm::kernel() const {
  const auto shown = [](auto value) { return value ? fmt::format("{}", *value) : "?"; };
  return fmt::format("algorithm {}, tile {}, stages {}, cluster {}, split K {}",
                     shown(setting<std::int32_t>(CUBLASLT_ALGO_CONFIG_ID)),
                     shown(setting<std::uint32_t>(CUBLASLT_ALGO_CONFIG_TILE_ID)),
                     shown(setting<std::uint32_t>(CUBLASLT_ALGO_CONFIG_STAGES_ID)),
                     shown(setting<std::uint16_t>(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)),
                     shown(setting<std::int32_t>(CUBLASLT_ALGO_CONFIG_SPLITK_NUM)));
}

void LtGemm::refuse(cublasStatus_t status) {
  reason_ = fmt::format("cuBLASLt {} has no kernel for this problem ({})",
                        lt().cublasLtGetVersion(), lt().cublasLtGetStatusName(status));
}

bool LtGemm::run(const void* a, const void* b, const float* scale_a, const float* scale_b,
                 void* d) {
  if (problem_.a_format != FormatId::bf16) set_scales(scale_a, scale_b);
  const float one = 1.0F;
  const float zero = 0.0F;
  const cublasStatus_t status =
      lt().cublasLtMatmul(handle_, operation_, &one, b, b_layout_, a, a_layout_, &zero,
                          c_.in_place ? d : nullptr, c_layout_, d, d_layout_, &algorithm_,
                          workspace_.data(), workspace_.size(), cudaStreamPerThread);
  // The heuristic offers kernels that the product itself then refuses.
  if (is_refusal(status)) {
    refuse(status);
    return false;
  }
  FP8LAB_CUDA_CHECK(status);
  return true;
}

}  // namespace fp8lab::cuda
