#pragma once
// Floating-point modes inside kernels.

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab::gemm_detail {

/// Rounds toward zero inside a FloatEnvironment to nearest. Kernels are calls between both, and on
/// x86 they compute in vector registers alone: the mode of the x87 unit, which takes longer to set
/// than all the rest, stays.
class TowardZero {
 public:
#if defined(__x86_64__)
  TowardZero() { _mm_setcsr(_mm_getcsr() | _MM_ROUND_TOWARD_ZERO); }
  ~TowardZero() { _mm_setcsr(_mm_getcsr() & ~static_cast<unsigned>(_MM_ROUND_TOWARD_ZERO)); }
#else
  TowardZero() { std::fesetround(FE_TOWARDZERO); }
  ~TowardZero() { std::fesetround(FE_TONEAREST); }
#endif
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;
};

/// The processor makes subnormal results zeros of their sign, where it can without changing
/// operands; elsewhere the kernels do (see PairKernels).
class FlushedResults {
 public:
  FlushedResults() {
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000;
    saved_ = _mm_getcsr();
    _mm_setcsr(saved_ | kFlushToZero);
#endif
  }
  ~FlushedResults() {
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#endif
  }
  FlushedResults(const FlushedResults&) = delete;
  FlushedResults& operator=(const FlushedResults&) = delete;

 private:
  unsigned saved_ = 0;
};

}  // namespace fp8lab::gemm_detail
