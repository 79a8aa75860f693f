#pragma once
// Rounding modes inside kernels.

#include <cfenv>

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab::gemm_detail {

using ScopedRounding = FloatEnvironment;

/// Rounds toward zero inside a ScopedRounding to nearest.
class TowardZero {
 public:
  TowardZero() { std::fesetround(FE_TOWARDZERO); }
  ~TowardZero() { std::fesetround(FE_TONEAREST); }
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;
};

}  // namespace fp8lab::gemm_detail
