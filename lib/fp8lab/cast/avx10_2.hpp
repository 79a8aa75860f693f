#pragma once
// AVX10.2's conversions with a bias of their own: VCVTBIASPH2BF8 and VCVTBIASPH2HF8, with S
// saturating. They add 8 bits below the last bit that stays, and truncate: stochastic rounding
// whose random bits the caller brings. Intel AVX10.2 architecture specification 361050,
// sections 5.1 and 9.3, read through a transcription of its pseudo-code.

#include <cstdint>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab {

/// Converts a code of FP16 to E5M2 (BF8) or E4M3 (HF8) with a bias of 0 to 255, in 256ths of the
/// last bit that stays. (Of E4M3's normal numbers FP16 has seven bits below that one, so that the
/// bias's last bit decides nothing.) Overflow, infinities and NaN: profile `avx10_2`, or
/// `avx10_2_sat` if it saturates.
constexpr CastResult cast_with_bias(const Format& to, bool saturates, std::uint16_t half,
                                    std::uint8_t bias) {
  CastPolicy policy = saturates ? kAvx10Saturating : kAvx10;
  policy.rounding = RoundingMode::stochastic;
  return cast(to, policy, unpack(format(FormatId::f16), half), std::uint32_t{bias} << 24);
}

}  // namespace fp8lab
