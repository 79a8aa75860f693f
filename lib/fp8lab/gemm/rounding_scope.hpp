#pragma once
// The floating-point environment of a kernel: no flush to zero, a known
// rounding mode, and the caller's environment back on every way out.

#include <cfenv>

namespace fp8lab::gemm_detail {

/// Sets the default environment (subnormals kept) of this thread with the given
/// rounding mode (FE_TONEAREST or FE_TOWARDZERO) until the end of the scope.
class ScopedRounding {
 public:
  explicit ScopedRounding(int mode) {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
    if (mode != FE_TONEAREST) std::fesetround(mode);
  }
  ~ScopedRounding() { std::fesetenv(&saved_); }
  ScopedRounding(const ScopedRounding&) = delete;
  ScopedRounding& operator=(const ScopedRounding&) = delete;

 private:
  std::fenv_t saved_{};
};

/// Rounds toward zero inside a ScopedRounding to nearest.
class TowardZero {
 public:
  TowardZero() { std::fesetround(FE_TOWARDZERO); }
  ~TowardZero() { std::fesetround(FE_TONEAREST); }
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;
};

}  // namespace fp8lab::gemm_detail
