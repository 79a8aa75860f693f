#pragma once
// Conversion into every format in three steps: unpack, round, pack. This is the
// scalar reference. Integer arithmetic decides every bit.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The code that a cast gives, and what happened in the cast.
struct CastResult {
  std::uint32_t code = 0;
  bool inexact = false;      ///< a finite input differs from the decoded code
  bool tie = false;          ///< the input was halfway between two neighbours
  bool overflowed = false;   ///< rounded above max finite (saturated or not), or input +-Inf
  bool underflowed = false;  ///< a non-zero input became zero
  bool nan = false;          ///< the result is NaN, or the format has no code for an input NaN
};

/// (-1)^negative * significand * 2^exponent. If `sticky` is set, the magnitude is larger than that
/// by less than one unit of the significand.
struct Exact {
  std::uint64_t significand = 0;
  int exponent = 0;
  bool negative = false;
  bool sticky = false;
};

namespace detail {

constexpr std::uint32_t nan_code(const Format& f, NanPolicy policy, bool negative) {
  if (policy == NanPolicy::positive_max) return f.max_finite_code();
  if (policy == NanPolicy::negative_max) return f.max_finite_code() | f.sign_mask();
  if (f.has_nan_for_negative_zero()) return f.sign_mask();
  if (!f.has_nan()) {
    if (policy == NanPolicy::signed_quiet) return negative ? 0 : f.sign_mask();
    return f.max_finite_code();
  }
  std::uint32_t code = f.magnitude_mask();
  if (policy == NanPolicy::signed_quiet && f.specials == SpecialValues::ieee)
    code = f.infinity_code() | (std::uint32_t{1} << (f.mantissa_bits - 1));
  const bool sign = negative && policy != NanPolicy::positive_all_ones;
  return sign ? code | f.sign_mask() : code;
}

constexpr std::uint32_t with_sign(const Format& f, std::uint32_t magnitude, bool negative) {
  if (!negative) return magnitude;
  if (f.has_nan_for_negative_zero() && magnitude == 0) return 0;
  return magnitude | f.sign_mask();
}

/// The code of +-Inf, or of a magnitude that is too large, without saturation.
constexpr CastResult non_saturated(const Format& f, bool negative) {
  CastResult r{.inexact = true, .overflowed = true};
  if (f.has_infinity()) {
    r.code = with_sign(f, f.infinity_code(), negative);
  } else if (f.has_nan()) {
    // ml_dtypes, OCP and CUDA keep the sign here: overflow gives 0x7f or 0xff.
    r.code =
        f.has_nan_for_negative_zero() ? f.sign_mask() : with_sign(f, f.magnitude_mask(), negative);
    r.nan = true;
  } else {
    r.code = with_sign(f, f.max_finite_code(), negative);
  }
  return r;
}

/// The largest code: that of the format, or the policy's `max_magnitude` if that is smaller.
constexpr std::uint32_t last_code(const Format& f, const CastPolicy& policy) {
  std::uint32_t code = f.max_finite_code();
  if (policy.max_magnitude > 0.0) {
    const auto bits = std::bit_cast<std::uint64_t>(policy.max_magnitude);
    const auto biased = static_cast<std::int64_t>(bits >> 52) - 1023 + f.bias;
    const std::uint64_t mantissa =
        (bits & ((std::uint64_t{1} << 52) - 1)) >> (52 - f.mantissa_bits);
    const std::uint64_t hidden = std::uint64_t{1} << f.mantissa_bits;
    const std::uint64_t last =
        biased > 0 ? (static_cast<std::uint64_t>(biased) << f.mantissa_bits) + mantissa
                   : (hidden + mantissa) >> std::min<std::int64_t>(1 - biased, 63);
    const bool no_number = f.field_zero == FieldZero::flushed && last < hidden;
    code = static_cast<std::uint32_t>(no_number ? 0 : std::min<std::uint64_t>(code, last));
  }
  return code;
}

/// +-Inf if the format has it, else the largest finite number.
constexpr CastResult infinite_or_last(const Format& f, const CastPolicy& policy, bool negative) {
  if (f.has_infinity()) return non_saturated(f, negative);
  return {
      .code = with_sign(f, last_code(f, policy), negative), .inexact = true, .overflowed = true};
}

/// +-Inf if the format has it, else the NaN of a positive NaN, else the largest finite number.
constexpr CastResult infinite_or_nan(const Format& f, const CastPolicy& policy, bool negative) {
  if (f.has_infinity() || !f.has_nan()) return infinite_or_last(f, policy, negative);
  return {.code = nan_code(f, policy.nan, false), .inexact = true, .overflowed = true, .nan = true};
}

/// Whether a mode rounds a magnitude that is too large to the largest finite number.
constexpr bool leads_to_finite(RoundingMode mode, const Format& f, bool negative) {
  switch (mode) {
    case RoundingMode::toward_zero:
      return true;
    case RoundingMode::upward:
      return negative;
    case RoundingMode::downward:
      return !negative;
    case RoundingMode::to_odd:  // where the largest number has the odd code, not Inf
      return f.has_infinity() && f.max_finite_code() % 2 == 1;
    default:
      return false;
  }
}

constexpr CastResult overflowed(const Format& f, const CastPolicy& policy, bool negative) {
  if (policy.overflow == OverflowPolicy::non_saturating) return non_saturated(f, negative);
  if (policy.overflow != OverflowPolicy::saturate && !leads_to_finite(policy.rounding, f, negative))
    return policy.overflow == OverflowPolicy::by_direction ? infinite_or_last(f, policy, negative)
                                                           : infinite_or_nan(f, policy, negative);
  return {
      .code = with_sign(f, last_code(f, policy), negative), .inexact = true, .overflowed = true};
}

/// +-Inf as an input.
constexpr CastResult of_infinity(const Format& f, const CastPolicy& policy, bool negative) {
  switch (policy.infinity) {
    case InfinityPolicy::non_saturating:
      return non_saturated(f, negative);
    case InfinityPolicy::propagate:
      return infinite_or_last(f, policy, negative);
    case InfinityPolicy::canonical_nan:
      return infinite_or_nan(f, policy, negative);
    case InfinityPolicy::fnuz_nan:
      if (f.has_nan_for_negative_zero() && !f.has_infinity()) return non_saturated(f, negative);
      break;
    case InfinityPolicy::saturate:
      break;
  }
  return {
      .code = with_sign(f, last_code(f, policy), negative), .inexact = true, .overflowed = true};
}

/// A negative number, or -Inf, in an unsigned format, unless the sign is ignored.
constexpr CastResult below_unsigned(const Format& f, const CastPolicy& policy, bool finite) {
  const RoundingMode mode = policy.rounding;
  const bool rises = mode == RoundingMode::toward_zero || mode == RoundingMode::upward;
  const bool directed = policy.overflow == OverflowPolicy::by_direction && finite && rises;
  if (policy.unsigned_target == UnsignedPolicy::least || directed || !f.has_nan())
    return {.inexact = true, .overflowed = !finite, .underflowed = finite && !f.is_scale_only()};
  return {.code = f.magnitude_mask(), .nan = true};
}

constexpr bool rounds_up(RoundingMode mode, bool negative, bool odd, std::uint64_t rest,
                         std::uint64_t half, bool sticky, int rest_bits, std::uint32_t random) {
  const bool above_half = rest > half || (rest == half && sticky && rest_bits > 0);
  const bool at_half = rest == half && !sticky && rest_bits > 0;
  const bool any = rest != 0 || sticky;
  switch (mode) {
    case RoundingMode::nearest_even:
      return above_half || (at_half && odd);
    case RoundingMode::nearest_away:
      return above_half || at_half;
    case RoundingMode::nearest_toward_zero:
      return above_half;
    case RoundingMode::toward_zero:
      return false;
    case RoundingMode::upward:
      return any && !negative;
    case RoundingMode::downward:
      return any && negative;
    case RoundingMode::stochastic: {
      const std::uint64_t fraction =
          rest_bits >= 32 ? rest >> (rest_bits - 32) : rest << (32 - rest_bits);
      return fraction + random >= (std::uint64_t{1} << 32);
    }
    case RoundingMode::to_odd:
      return any && !odd;
  }
  return false;
}

}  // namespace detail

/// Rounds an exact finite value to format `f` under `policy` and packs it. Only stochastic
/// rounding uses `random`: 32 uniform bits, added below the rounding position.
constexpr CastResult round_and_pack(const Format& f, const CastPolicy& policy, const Exact& x,
                                    std::uint32_t random = 0) {
  const bool takes_sign = f.has_sign || policy.unsigned_target != UnsignedPolicy::ignore_sign;
  const bool negative = x.negative && takes_sign;
  if (x.significand == 0 && !x.sticky) {
    if (f.is_scale_only() && policy.unsigned_target == UnsignedPolicy::nan)
      return {.code = f.magnitude_mask(), .nan = true};
    return {.code = detail::with_sign(f, 0, negative), .inexact = f.is_scale_only()};
  }
  if (f.is_scale_only() && negative) return detail::below_unsigned(f, policy, true);

  // A lone sticky bit is below everything: any tiny significand stands for it.
  const std::uint64_t significand = x.significand == 0 ? 1 : x.significand;
  const bool sticky = x.sticky && x.significand != 0;
  const int exponent = x.significand == 0 ? x.exponent - 64 : x.exponent;
  const int leading = 63 - std::countl_zero(significand) + exponent;

  const bool flushes = f.field_zero == FieldZero::flushed;
  if (leading < f.min_exponent() && !f.is_scale_only() &&
      (flushes || policy.subnormals != SubnormalPolicy::preserve)) {
    const bool raise = policy.subnormals == SubnormalPolicy::raise_to_min_normal;
    if (raise && negative && !f.has_sign) return detail::below_unsigned(f, policy, true);
    const std::uint32_t magnitude = raise ? std::uint32_t{1} << f.mantissa_bits : 0;
    return {
        .code = detail::with_sign(f, magnitude, negative), .inexact = true, .underflowed = !raise};
  }

  const int binade = std::max(leading, f.min_exponent());
  const int dropped = binade - f.mantissa_bits - exponent;  // bits below the last kept one
  std::uint64_t kept = 0;
  std::uint64_t rest = 0;
  std::uint64_t half = 0;
  bool low_sticky = sticky;
  int rest_bits = 0;
  if (dropped <= 0) {
    kept = significand << -dropped;
  } else if (dropped < 64) {
    kept = significand >> dropped;
    rest = significand & ((std::uint64_t{1} << dropped) - 1);
    half = std::uint64_t{1} << (dropped - 1);
    rest_bits = dropped;
  } else {
    // The whole significand is below the last kept bit: rescale it to 63 fraction bits.
    const int shift = dropped - 63;
    rest = shift < 64 ? significand >> shift : 0;
    low_sticky = sticky || shift >= 64 || (rest << shift) != significand;
    half = std::uint64_t{1} << 62;
    rest_bits = 63;
  }

  // Codes are ordered like magnitudes, so a carry out of the mantissa is the next binade.
  const std::int64_t first_field = f.is_scale_only() ? 0 : 1;
  const std::int64_t field = binade - f.min_exponent() + first_field;
  std::int64_t magnitude =
      ((field - 1) * (std::int64_t{1} << f.mantissa_bits)) + static_cast<std::int64_t>(kept);
  // The parity of a significand is that of its code, but without a mantissa only codes have one.
  const bool odd = f.is_scale_only() ? (kept & 1) != 0 : (magnitude & 1) != 0;
  CastResult r;
  r.inexact = rest != 0 || low_sticky;
  r.tie = rest_bits > 0 && rest == half && !low_sticky;
  if (detail::rounds_up(policy.rounding, negative, odd, rest, half, low_sticky, rest_bits, random))
    ++magnitude;
  if (f.is_scale_only() && magnitude < 0) return {.code = 0, .inexact = true};  // below the least

  if (negative && !f.has_sign && magnitude != 0) return detail::below_unsigned(f, policy, true);
  if (magnitude > detail::last_code(f, policy)) {
    const CastResult over = detail::overflowed(f, policy, negative);
    r.code = over.code;
    r.nan = over.nan;
    r.inexact = r.overflowed = true;
    r.tie = r.tie && policy.overflow != OverflowPolicy::non_saturating;
    return r;
  }
  r.code = detail::with_sign(f, static_cast<std::uint32_t>(magnitude), negative);
  r.underflowed = magnitude == 0 && !f.is_scale_only();
  return r;
}

/// Casts an unpacked value of any format to `f`, under `policy`; `random` as above.
constexpr CastResult cast(const Format& f, const CastPolicy& policy, const Unpacked& x,
                          std::uint32_t random = 0) {
  if (x.value_class == ValueClass::nan)
    return {.code = detail::nan_code(f, policy.nan, x.negative), .nan = true};
  if (x.value_class == ValueClass::infinity) {
    if (!f.has_sign && x.negative && policy.unsigned_target != UnsignedPolicy::ignore_sign)
      return detail::below_unsigned(f, policy, false);
    return detail::of_infinity(f, policy, x.negative);
  }
  return round_and_pack(f, policy,
                        {.significand = x.significand,
                         .exponent = x.exponent - x.mantissa_bits,
                         .negative = x.negative},
                        random);
}

/// Casts a binary32 value to `f`, under `policy`; `random` as above.
constexpr CastResult cast(const Format& f, const CastPolicy& policy, float x,
                          std::uint32_t random = 0) {
  return cast(f, policy, unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(x)), random);
}

/// As `cast`, but returns the code only.
constexpr std::uint32_t encode(const Format& f, const CastPolicy& policy, float x,
                               std::uint32_t random = 0) {
  return cast(f, policy, x, random).code;
}

/// The exact value of x after a cast to `f` and back.
inline double round_trip(const Format& f, const CastPolicy& policy, float x) {
  return decode(f, encode(f, policy, x));
}

}  // namespace fp8lab
