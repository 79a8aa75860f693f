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
// One difference: k is limited to [1/16, 8]. The limit 8 is that of the kernel's test;
// the kernel itself computes Inf for a group of equal magnitudes. Without the lower
// limit a group with Inf would have k = 0. The paper uses the format's range,
// 448 / 2^-9; the kernel uses 448^2 / 2.
//
// powf and log2f are those of the C library; another library may change a last bit.

#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

struct Expansion {
  float exponent = 1.0F;  ///< k
  float centre = 1.0F;
  float inverse_scale = 1.0F;

  /// The value that is cast to the format.
  [[nodiscard]] float expand(float x) const;
  /// The value of a decoded code.
  [[nodiscard]] float contract(float code) const;
};

/// The expansion of one group of at least one element. NaN elements are ignored, as
/// by CUDA's fmaxf. With Inf the codes of the group are zeros and NaN.
Expansion expansion_of(std::span<const float> group, const Format& f);

}  // namespace fp8lab
