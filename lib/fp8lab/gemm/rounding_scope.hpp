#pragma once
// Floating-point modes inside kernels.

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fp8lab/accumulate/model.hpp"
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

/// The processor flushes subnormal numbers as the model says, where it can do so: results after
/// they were rounded, and operands alone if the model flushes these, too. Elsewhere the kernels do.
class FlushedSubnormals {
 public:
  explicit FlushedSubnormals([[maybe_unused]] Subnormals subnormals) {
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x40;
    saved_ = _mm_getcsr();
    unsigned modes = saved_;
    if (subnormals != Subnormals::kept) modes |= kFlushToZero;
    if (subnormals == Subnormals::flushed) modes |= kDenormalsAreZero;
    _mm_setcsr(modes);
#endif
  }
  ~FlushedSubnormals() {
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#endif
  }
  FlushedSubnormals(const FlushedSubnormals&) = delete;
  FlushedSubnormals& operator=(const FlushedSubnormals&) = delete;

 private:
  unsigned saved_ = 0;
};

}  // namespace fp8lab::gemm_detail
