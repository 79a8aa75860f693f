#pragma once
// cuBLASLt matrix products on device memory: FP8 as the library offers it, and
// BF16 to compare with.

#include <cublasLt.h>

#include <optional>
#include <string>

#include "device_buffer.hpp"
#include "fp8lab/formats/format.hpp"
#include "lt_operand_c.hpp"

namespace fp8lab::cuda {

/// Throws `Error` as `fail` does unless the status is success.
void check(cublasStatus_t status, const char* call, const char* file, int line);

enum class LtScales {
  per_tensor,  ///< one inverse scale for A and one for B
  rowwise,     ///< one for each row of A and of B (CUDA 12.9 and later)
  blockwise,   ///< 1x128 for A, 128x128 for B (CUDA 12.9 and later)
};

/// What to multiply. A [m,k], B [n,k], D [m,n], all row-major; FP8 inputs want k
/// and n to be multiples of 16, blockwise scales m and n multiples of 4.
struct LtProblem {
  FormatId a_format = FormatId::e4m3fn;  ///< or e5m2, or bf16 for both
  FormatId b_format = FormatId::e4m3fn;
  int m = 0;
  int n = 0;
  int k = 0;
  bool fast_accumulation = false;
  LtScales scales = LtScales::per_tensor;
  bool may_split_k = true;            ///< whether K may be cut into parts that are added at the end
  FormatId d_format = FormatId::f32;  ///< f32, bf16, f16, e4m3fn or e5m2; BF16 inputs give bf16
};

/// A product that cuBLASLt has chosen a kernel for.
class LtGemm {
 public:
  explicit LtGemm(const LtProblem& problem);
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;
  ~LtGemm();

  /// Whether this library and device offer the product; if not, why.
  [[nodiscard]] bool supported() const { return reason_.empty(); }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// The kernel that was chosen, in cuBLASLt's own numbers.
  [[nodiscard]] std::string kernel() const;
  /// Into how many parts that kernel cuts K, as far as it says.
  [[nodiscard]] int split_k() const;

  /// D (in the problem's format; an FP8 D has the scale 1) = scales * A . B^T. Scales are
  /// inverse ones in device memory, aligned to 16 bytes: per tensor one value each,
  /// rowwise m and n, blockwise [ceil(k/128), m] (A's rows contiguous) and
  /// [ceil(n/128), ceil(k/128) rounded up to 4] (cuBLAS documentation, "Scaling
  /// factors layouts" of 128-element 1D and 128x128 2D block scaling; its B is our
  /// A). Launched, not synchronised. False, with the reason, if the library refuses only now.
  [[nodiscard]] bool run(const void* a, const void* b, const float* scale_a, const float* scale_b,
                         void* d);

 private:
  void choose_kernel();
  void refuse(cublasStatus_t status);
  void set_scale_modes();
  void set_scales(const float* scale_a, const float* scale_b);
  template <typename T>
  [[nodiscard]] std::optional<T> setting(cublasLtMatmulAlgoConfigAttributes_t attribute) const;

  LtProblem problem_;
  std::string reason_;
  LtOperandC c_{};
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_layout_ = nullptr;
  cublasLtMatrixLayout_t b_layout_ = nullptr;
  cublasLtMatrixLayout_t c_layout_ = nullptr;
  cublasLtMatrixLayout_t d_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  DeviceBuffer<unsigned char> workspace_;
};

}  // namespace fp8lab::cuda
