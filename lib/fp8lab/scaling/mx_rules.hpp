#pragma once
// Scales that are powers of two: OCP's microscaling types as each system computes them.
// Specified in docs/specification/scaling.md. Inline: tiles are many.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::scaling_detail {

inline constexpr std::uint32_t kExponentMask = 0x7f800000;
inline constexpr std::uint32_t kMantissaMask = 0x007fffff;
inline constexpr std::uint8_t kE8m0Nan = 255;

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// floor(log2 x) as frameworks compute it: log2 is rounded to binary32 first.
inline float floor_log2(float x) {
  return std::floor(static_cast<float>(std::log2(static_cast<double>(x))));
}

/// Biased exponent of `x` rounded up to a power of two, as an E8M0 code: code 0
/// is 2^-127, half of the smallest normal, hence the special case.
inline std::uint32_t e8m0_round_up(float x) {
  const std::uint32_t exponent = bits_of(x) >> 23;
  const std::uint32_t mantissa = bits_of(x) & kMantissaMask;
  const bool up = exponent == 0 ? mantissa > 0x00400000 : mantissa != 0;
  return exponent + (up ? 1 : 0);
}

inline std::uint8_t mx_code(ScaleRule rule, float max_finite, const Format& f, float amax) {
  if (rule == ScaleRule::mx_rceil || rule == ScaleRule::te_mx) {
    const float descale = amax * (1.0F / max_finite);
    if (std::isnan(descale)) return kE8m0Nan;
    if (std::isinf(descale)) return rule == ScaleRule::te_mx ? 254 : kE8m0Nan;
    return static_cast<std::uint8_t>(e8m0_round_up(descale));
  }
  std::uint32_t bits = bits_of(amax);
  if (std::isnan(amax)) return kE8m0Nan;
  if (rule == ScaleRule::mx_even)
    bits = (bits + (std::uint32_t{1} << (22 - f.mantissa_bits))) & kExponentMask;
  if ((bits & kExponentMask) == kExponentMask) return kE8m0Nan;
  int exponent = static_cast<int>(bits >> 23) - 127;
  if (rule == ScaleRule::mx_ceil && (bits & kMantissaMask) != 0) ++exponent;
  // The element format's largest power of two.
  const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  return static_cast<std::uint8_t>(std::max(exponent - element_exponent, -127) + 127);
}

/// 2^(code - 127), an E8M0 code's value; code 255 is NaN.
inline float e8m0_value(std::uint32_t code) {
  constexpr std::uint32_t kQuietNan = 0x7fc00000;
  constexpr std::uint32_t kSmallest = 0x00400000;  // 2^-127, a subnormal
  if (code == kE8m0Nan) return float_of(kQuietNan);
  return float_of(code == 0 ? kSmallest : code << 23);
}

/// torchao's `to_mx` up to its casts.
inline TileScale torchao_mx_scale(ScaleRule rule, const Format& f, float amax) {
  if (std::isnan(amax)) return {0.0F, e8m0_value(kE8m0Nan), kE8m0Nan};
  std::uint32_t bits = bits_of(amax);
  if (rule == ScaleRule::torchao_mx_even)
    bits = (bits + (std::uint32_t{1} << (22 - f.mantissa_bits))) & kExponentMask;
  int exponent = static_cast<int>(bits >> 23);
  if (rule == ScaleRule::torchao_mx_ceil && (bits & kMantissaMask) != 0) ++exponent;
  const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  const auto code = static_cast<std::uint32_t>(std::max(exponent - element_exponent, 0));
  return {e8m0_value(254 - std::max<std::uint32_t>(code, 1)), e8m0_value(code),
          static_cast<std::uint8_t>(code)};
}

/// ceil(log2 x) as an E8M0 code, where log2 is rounded to binary32 first: next to powers of two it
/// rounds *down*. 0 gives 0, Inf 254.
inline std::uint32_t ceil_log2_code(float x) {
  const auto log2 = static_cast<float>(std::log2(static_cast<double>(x)));
  return static_cast<std::uint32_t>(std::clamp(std::ceil(log2), -127.0F, 127.0F) + 127.0F);
}

/// `ceil_log2_code` without a logarithm a tile: of the numbers of a binade the first few have its
/// code, the others the next one.
class CeilLog2Codes {
 public:
  CeilLog2Codes() {
    const FloatEnvironment environment;  // it is kept, whatever mode its first user has
    for (std::uint32_t e = 0; e < last_.size(); ++e) {
      std::uint32_t low = e << 23;  // has code e
      std::uint32_t high = (e + 1) << 23;
      while (high - low > 1) {
        const std::uint32_t middle = low + (high - low) / 2;
        (ceil_log2_code(float_of(middle)) == e ? low : high) = middle;
      }
      last_[e] = low;
    }
  }

  /// x >= 0, or Inf.
  [[nodiscard]] std::uint32_t operator()(float x) const {
    const std::uint32_t bits = bits_of(x) & 0x7fffffff;
    const std::uint32_t e = std::min(bits >> 23, kMost);
    return std::min(e + (bits > last_[e] ? 1 : 0), kMost);
  }

 private:
  static constexpr std::uint32_t kMost = 254;
  std::array<std::uint32_t, kMost + 1> last_;  ///< of each binade, as bits, with the binade's code
};

inline const CeilLog2Codes& ceil_log2_codes() {
  static const CeilLog2Codes codes;
  return codes;
}

inline TileScale torchao_mx_rceil_scale(const CeilLog2Codes& codes, float max_finite, float amax) {
  const float descale = amax / max_finite;
  if (std::isnan(descale)) return {e8m0_value(kE8m0Nan), e8m0_value(kE8m0Nan), kE8m0Nan};
  const std::uint32_t code = codes(descale);
  return {code == 0 ? 1.0F : e8m0_value(254 - code), e8m0_value(code),
          static_cast<std::uint8_t>(code)};
}

inline TileScale mx_scale(ScaleRule rule, float max_finite, const Format& f, float amax) {
  const std::uint8_t code = mx_code(rule, max_finite, f, amax);
  TileScale result;
  result.e8m0 = code;
  result.inverse_scale = e8m0_value(code);
  if (rule == ScaleRule::te_mx)
    // One integer subtraction: 254 has no reciprocal left, and 0 is meant for empty tiles.
    result.scale = code == 0 ? 1.0F : float_of((std::uint32_t{254} - code) << 23);
  else
    result.scale = code == kE8m0Nan ? e8m0_value(code) : e8m0_value(std::uint32_t{254} - code);
  return result;
}

/// compressed-tensors: the amax's power of two, the next one where the mantissa is above a
/// threshold (1.75, of E2M3 1.9375), less the element's. What it makes of an exponent above E8M0's
/// is an infinite scale. To a NaN's bits it adds as to a number's, so that code 0 or 255 comes of
/// them: 255 here.
inline TileScale compressed_mx_scale(ScaleRule rule, const Format& f, float amax) {
  const std::uint32_t up = rule == ScaleRule::compressed_mx6 ? 1U << 19U : 1U << 21U;
  const std::uint32_t bits = (bits_of(amax) + up) & kExponentMask;
  if (std::isnan(amax) || bits == kExponentMask) return {0.0F, e8m0_value(kE8m0Nan), kE8m0Nan};
  const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  const auto code =
      static_cast<std::uint32_t>(std::max(static_cast<int>(bits >> 23) - element_exponent, 0));
  return {e8m0_value(254 - code), e8m0_value(code), static_cast<std::uint8_t>(code)};
}

/// ModelOpt: ceil(log2(amax / M)). Its MXFP8 gives a NaN amax code 0; its MXFP4 converts Inf and
/// NaN to integers, which C++ leaves open: 255 here.
inline TileScale modelopt_mx_scale(const CeilLog2Codes& codes, bool is_mxfp4, float max_finite,
                                   float amax) {
  if (is_mxfp4 && !std::isfinite(amax)) return {0.0F, e8m0_value(kE8m0Nan), kE8m0Nan};
  const std::uint32_t code = std::isnan(amax) ? 0 : codes(amax / max_finite);
  return {e8m0_value(254 - code), e8m0_value(code), static_cast<std::uint8_t>(code)};
}

/// The next power of two that is not below x > 0, as an exponent of binary32.
inline std::uint32_t exponent_above(float x) {
  const std::uint32_t bits = bits_of(x) & 0x7fffffff;
  return (bits >> 23) + ((bits & kMantissaMask) != 0 ? 1 : 0);
}

/// DeepGEMM's per_token_cast_to_fp4: what it makes of an exponent is a number, of NaN too.
inline TileScale deepgemm_fp4_scale(float max_finite, float amax) {
  const float inverse = (amax < 1e-4F ? 1e-4F : amax) / max_finite;
  const std::uint32_t code = std::clamp<std::uint32_t>(exponent_above(inverse), 1, 254);
  return {e8m0_value(254 - code), e8m0_value(code), static_cast<std::uint8_t>(code)};
}

/// vLLM's cvt_warp_fp16_to_fp4 with UE8M0 scales.
inline TileScale vllm_mxfp4_scale(const Format& f, float amax) {
  const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  const auto exponent = static_cast<int>((bits_of(amax) + (1U << 21U)) >> 23U);
  const auto code = static_cast<std::uint32_t>(std::clamp(exponent - element_exponent, 0, 254));
  return {code == 0 ? 0.0F : e8m0_value(254 - code), e8m0_value(code),
          static_cast<std::uint8_t>(code)};
}

/// What a nearest-even cast to E2M1 turns into codes whose ties went toward zero, where the even
/// number is the larger one too.
inline float fp4_ties_down(float y) {
  const float magnitude = std::abs(y);
  const bool is_tie = magnitude == 0.75F || magnitude == 1.75F || magnitude == 3.5F;
  return is_tie ? float_of(bits_of(y) - 1) : y;
}

/// The number that is cast, of a product or quotient.
inline float after_last_step(LastStep step, float y) {
  switch (step) {
    case LastStep::none:
      return y;
    case LastStep::no_minus_zero:
      return y + 0.0F;
    case LastStep::fp4_down_minus_zero:
      return y == 0.0F ? -0.0F : fp4_ties_down(y);
    case LastStep::fp4_down_plus_zero:
      return std::abs(y) > 0.25F ? fp4_ties_down(y) : 0.0F;
  }
  return y;
}

}  // namespace fp8lab::scaling_detail
