#pragma once
// COAT's dynamic range expansion (arXiv 2410.19313, section 4): x^k widens or
// narrows a group's range of magnitudes until it fills that of the format.
//
// The rule is *read* in COAT's fused kernel, in binary32, step by step:
//   max = amax + 1e-20, min = amin + 1e-20    (amin counts zeros)
//   centre = sqrt(max min)
//   k = floor(16 log2(M^2 / 2) / log2(max / min)) / 16, M = max finite
//   inverse_scale = (max / centre)^k / M
//   code = cast(sign(x) (|x| / centre)^k / inverse_scale)
//   x    = sign(code) |code inverse_scale|^(1/k) centre
// One thing differs: k ends at 8, as in the test of that kernel, because the
// kernel's own is Inf for a group of equal magnitudes; and it starts at 1/16,
// where a group with Inf would get 0. The paper takes the format's range,
// 448 / 2^-9, where the kernel takes 448^2 / 2.
//
// powf and log2f come from the C library: another one may change a last bit.

#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

struct Expansion {
  float exponent = 1.0F;  ///< k
  float centre = 1.0F;
  float inverse_scale = 1.0F;

  /// What is cast to the format.
  [[nodiscard]] float expand(float x) const;
  /// The value of a decoded code.
  [[nodiscard]] float contract(float code) const;
};

/// The expansion of one group (at least one element). NaN elements are ignored,
/// as by CUDA's fmaxf; Inf makes the group's codes zeros and NaN.
Expansion expansion_of(std::span<const float> group, const Format& f);

}  // namespace fp8lab
