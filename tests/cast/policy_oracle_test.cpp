// Everything that a cast says, of every policy: the code, and what happened. Against arithmetic on
// the grid of the format's values, which are exact in FP64, as their midpoints are.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cast/cast_cases.hpp"
#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

/// The code of a magnitude that the format has.
std::uint32_t code_of_magnitude(const Format& f, double value) {
  std::uint32_t low = 0;
  std::uint32_t high = f.max_finite_code();
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (decode(f, middle) < value)
      low = middle + 1;
    else
      high = middle;
  }
  if (decode(f, low) != value) FAIL(f.name << " has no " << value);
  return low;
}

bool nan_for_negative_zero(const Format& f) {
  return f.specials == SpecialValues::fnuz || f.specials == SpecialValues::fnuz_inf;
}

bool has_no_nan(const Format& f) {
  return f.specials == SpecialValues::none || f.specials == SpecialValues::inf_only;
}

std::uint32_t signed_code(const Format& f, std::uint32_t magnitude, bool negative) {
  if (!negative || !f.has_sign) return magnitude;
  if (nan_for_negative_zero(f) && magnitude == 0) return 0;
  return magnitude | 1U << (f.code_bits() - 1);
}

std::uint32_t code_of_nan(const Format& f, NanPolicy policy, bool negative) {
  const std::uint32_t largest = f.max_finite_code();
  const std::uint32_t sign = f.has_sign ? 1U << (f.code_bits() - 1) : 0;
  if (policy == NanPolicy::positive_max) return largest;
  if (policy == NanPolicy::negative_max) return largest | sign;
  if (nan_for_negative_zero(f)) return sign;
  if (has_no_nan(f)) return policy == NanPolicy::signed_quiet ? (negative ? 0 : sign) : largest;
  const std::uint32_t ones = (1U << (f.exponent_bits + f.mantissa_bits)) - 1;
  // Of IEEE's formats, all of which have a fraction.
  const auto quiet = [&] { return ones ^ ((1U << (f.mantissa_bits - 1)) - 1); };
  switch (policy) {
    case NanPolicy::positive_all_ones:
      return ones;
    case NanPolicy::signed_all_ones:
      return ones | (negative ? sign : 0);
    default:
      return (f.specials == SpecialValues::ieee ? quiet() : ones) | (negative ? sign : 0);
  }
}

CastResult unsaturated(const Format& f, bool negative) {
  CastResult r{.inexact = true, .overflowed = true};
  const std::uint32_t ones = (1U << (f.exponent_bits + f.mantissa_bits)) - 1;
  r.nan = f.specials == SpecialValues::nan_only || f.specials == SpecialValues::fnuz;
  if (f.specials == SpecialValues::fnuz_inf || f.specials == SpecialValues::inf_only)
    r.code = signed_code(f, ones, negative);
  switch (f.specials) {
    case SpecialValues::ieee:
      r.code = signed_code(f, ones ^ ((1U << f.mantissa_bits) - 1), negative);
      break;
    case SpecialValues::nan_only:
      r.code = signed_code(f, ones, negative);
      break;
    case SpecialValues::fnuz:
      r.code = 1U << (f.code_bits() - 1);
      break;
    case SpecialValues::none:
      r.code = signed_code(f, f.max_finite_code(), negative);
      break;
    case SpecialValues::nan_inf:
      r.code = signed_code(f, ones - 1, negative);
      break;
    case SpecialValues::fnuz_inf:
    case SpecialValues::inf_only:
      break;
  }
  return r;
}

bool has_infinity(const Format& f) {
  const CastResult r = unsaturated(f, false);
  return !r.nan && f.specials != SpecialValues::none;
}

/// A magnitude above the largest number under `by_direction`: whether it becomes that number.
bool stays_finite(const Format& f, RoundingMode mode, bool negative) {
  if (!has_infinity(f)) return true;
  if (mode == RoundingMode::upward) return negative;
  if (mode == RoundingMode::downward) return !negative;
  if (mode == RoundingMode::to_odd) return unsaturated(f, false).code % 2 == 0;
  return mode == RoundingMode::toward_zero;
}

bool leads_away_from_infinity(RoundingMode mode, bool negative) {
  if (mode == RoundingMode::toward_zero) return true;
  return mode == (negative ? RoundingMode::upward : RoundingMode::downward);
}

/// An infinite result of RISC-V; `last` is the largest number that the policy lets through.
CastResult infinity_or_nan(const Format& f, const CastPolicy& policy, bool negative,
                           std::uint32_t last) {
  if (has_infinity(f)) return unsaturated(f, negative);
  CastResult r{.inexact = true, .overflowed = true, .nan = !has_no_nan(f)};
  r.code = r.nan ? code_of_nan(f, policy.nan, false) : signed_code(f, last, negative);
  return r;
}

/// What a negative number that does not become zero is in a format without a sign.
CastResult below_zero(const Format& f, const CastPolicy& policy, bool finite) {
  const std::uint32_t ones = (1U << (f.exponent_bits + f.mantissa_bits)) - 1;
  const bool raised =
      finite && policy.overflow == OverflowPolicy::by_direction &&
      (policy.rounding == RoundingMode::toward_zero || policy.rounding == RoundingMode::upward);
  if (policy.unsigned_target == UnsignedPolicy::nan && !raised && !has_no_nan(f))
    return {.code = ones, .nan = true};
  return {.inexact = true,
          .overflowed = !finite,
          .underflowed = finite && f.field_zero != FieldZero::normal};
}

bool goes_up(RoundingMode mode, double rest, bool odd, bool negative, std::uint32_t random) {
  switch (mode) {
    case RoundingMode::nearest_even:
      return rest > 0.5 || (rest == 0.5 && odd);
    case RoundingMode::nearest_away:
      return rest >= 0.5;
    case RoundingMode::nearest_toward_zero:
      return rest > 0.5;
    case RoundingMode::toward_zero:
      return false;
    case RoundingMode::upward:
      return rest > 0.0 && !negative;
    case RoundingMode::downward:
      return rest > 0.0 && negative;
    case RoundingMode::stochastic:
      return std::floor(rest * 0x1p32) + random >= 0x1p32;
    case RoundingMode::to_odd:
      return rest > 0.0 && !odd;
  }
  return false;
}

/// The largest number that the policy lets through.
double limit_of(const Format& f, const CastPolicy& policy) {
  const double largest = decode(f, f.max_finite_code());
  if (policy.max_magnitude == 0.0 || policy.max_magnitude >= largest) return largest;
  if (f.field_zero == FieldZero::flushed && policy.max_magnitude < f.min_normal()) return 0.0;
  const double unit = std::ldexp(
      1.0, std::max(std::ilogb(policy.max_magnitude), f.min_exponent()) - f.mantissa_bits);
  return std::floor(policy.max_magnitude / unit) * unit;
}

CastResult expected_cast(const Format& f, const CastPolicy& policy, float x, std::uint32_t random) {
  const bool scale = f.field_zero == FieldZero::normal;
  const bool ignored = !f.has_sign && policy.unsigned_target == UnsignedPolicy::ignore_sign;
  const bool negative = std::signbit(x) && !ignored;
  const bool below = negative && !f.has_sign;
  const double least_normal = std::ldexp(1.0, scale ? -f.bias : 1 - f.bias);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return {.code = code_of_nan(f, policy.nan, std::signbit(x)), .nan = true};
  if (scale && policy.unsigned_target == UnsignedPolicy::nan && x == 0.0F)
    return {.code = code_of_nan(f, NanPolicy::positive_all_ones, false), .nan = true};
  if (below && (std::isinf(x) || (scale && x != 0.0F)))
    return below_zero(f, policy, !std::isinf(x));
  const std::uint32_t last = code_of_magnitude(f, limit_of(f, policy));
  if (std::isinf(x)) {
    if (policy.infinity == InfinityPolicy::canonical_nan)
      return infinity_or_nan(f, policy, negative, last);
    if (policy.infinity == InfinityPolicy::non_saturating ||
        (policy.infinity == InfinityPolicy::propagate && has_infinity(f)) ||
        (policy.infinity == InfinityPolicy::fnuz_nan && f.specials == SpecialValues::fnuz))
      return unsaturated(f, negative);
    return {.code = signed_code(f, last, negative), .inexact = true, .overflowed = true};
  }
  if (x == 0.0F) return {.code = signed_code(f, 0, negative), .inexact = scale};
  const bool flushed = f.field_zero == FieldZero::flushed;
  if (!scale && magnitude < least_normal &&
      (flushed || policy.subnormals != SubnormalPolicy::preserve)) {
    const bool raised = policy.subnormals == SubnormalPolicy::raise_to_min_normal;
    if (raised && below) return below_zero(f, policy, true);
    return {.code = signed_code(f, raised ? 1U << f.mantissa_bits : 0, negative),
            .inexact = true,
            .underflowed = !raised};
  }
  const double unit = std::max(std::ldexp(1.0, std::ilogb(magnitude) - f.mantissa_bits),
                               std::ldexp(least_normal, -f.mantissa_bits));
  const double units = magnitude / unit;
  const double units_below = std::floor(units);
  const double rest = units - units_below;
  // Without fraction bits the code of 2^e is its exponent field; the code of zero is 0.
  const bool plain = f.mantissa_bits > 0 || scale || units_below == 0.0;
  const double parity = plain ? units_below : std::ilogb(magnitude) + f.bias;
  const bool odd = std::fmod(parity, 2.0) != 0.0;
  const bool up = goes_up(policy.rounding, rest, odd, negative && !scale, random);
  const double rounded = (units_below + (up ? 1.0 : 0.0)) * unit;
  CastResult r{.inexact = rest != 0.0, .tie = rest == 0.5};
  if (below && rounded != 0.0) return below_zero(f, policy, true);
  if (rounded > limit_of(f, policy)) {
    if (policy.overflow == OverflowPolicy::non_saturating) return unsaturated(f, negative);
    const bool keeps_finite = leads_away_from_infinity(policy.rounding, negative) ||
                              (policy.rounding == RoundingMode::to_odd && has_infinity(f) &&
                               stays_finite(f, policy.rounding, negative));
    if (policy.overflow == OverflowPolicy::canonical_nan && !keeps_finite) {
      const CastResult over = infinity_or_nan(f, policy, negative, last);
      r.code = over.code;
      r.nan = over.nan;
      r.inexact = r.overflowed = true;
      return r;
    }
    if (policy.overflow == OverflowPolicy::by_direction && has_infinity(f) &&
        !stays_finite(f, policy.rounding, negative)) {
      r.code = unsaturated(f, negative).code;
      r.inexact = r.overflowed = true;
      return r;
    }
    r.code = signed_code(f, last, negative);
    r.inexact = r.overflowed = true;
    return r;
  }
  // A scale format has no number below its smallest one.
  if (scale && rounded == 0.0) return {.inexact = true};
  r.code = signed_code(f, code_of_magnitude(f, rounded), negative);
  r.underflowed = rounded == 0.0;
  return r;
}

std::string text_of(const CastResult& r) {
  return fmt::format("{:x}{}{}{}{}{}", r.code, r.inexact ? " inexact" : "", r.tie ? " tie" : "",
                     r.overflowed ? " overflowed" : "", r.underflowed ? " underflowed" : "",
                     r.nan ? " nan" : "");
}

}  // namespace

TEST_CASE("casts under every policy say what they give and what happened", "[cast]") {
  std::vector<const Format*> formats;
  for (const char* name : {"e4m3fn",
                           "e5m2",
                           "e4m3fnuz",
                           "e5m2fnuz",
                           "e8m0fnu",
                           "e2m1",
                           "e2m3",
                           "e3m2",
                           "f16",
                           "bf16",
                           "e3m4",
                           "e4m3_ieee",
                           "e4m3b11fnuz",
                           "ue4m3",
                           "ue5m3",
                           "binary8p1se",
                           "binary8p1uf",
                           "binary8p3se",
                           "binary8p4uf",
                           "binary8p5ue",
                           "binary8p7sf",
                           "binary8p8ue",
                           "binary4p2se",
                           "binary12p6se",
                           "float:e=3,m=0,nan=none",
                           "float:e=4,m=3,inf=yes,nan=none",
                           "float:e=4,m=3,inf=yes,nan=one",
                           "float:e=4,m=3,subnormals=flushed",
                           "float:e=3,m=3,nan=one,signed=no,subnormals=flushed",
                           "float:e=5,m=0,nan=one,signed=no,subnormals=normal"})
    formats.push_back(&find_format(name));
  constexpr double kLimits[] = {0.0, 0.0, 0.0, 3e-5, 0.011, 1.0, 1.5, 2.7, 5.0, 240.0, 1e30};
  std::uint64_t at = 0;
  for (const Format* one_format : formats) {
    const Format& f = *one_format;
    std::vector<float> in;
    if (f.code_bits() <= 8) in = test::neighbourhoods(f);
    const RandomStream stream(1, f.name);
    for (std::uint64_t i = 0; i < 1500; ++i) {
      const auto near = static_cast<float>(stream.normal(4 * i));
      in.push_back(std::ldexp(near, static_cast<int>(stream.below(4 * i + 1, 60)) - 40));
      in.push_back(std::bit_cast<float>(stream.bits32(16 * i + 8)));
      // A midpoint, or beside one.
      const double one = std::fabs(decode(f, stream.bits32(16 * i + 12) % f.max_finite_code()));
      const double next = decode(f, code_of_magnitude(f, one) + 1);
      const auto middle = static_cast<float>((one + next) / 2.0);
      in.push_back(i % 3 == 0 ? middle : std::nextafter(middle, i % 3 == 1 ? 0.0F : 3e38F));
    }
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    for (const float special :
         {0.0F, kInfinite, std::numeric_limits<float>::quiet_NaN(), 0x1p-149F, 3e38F})
      for (int i = 0; i < 60; ++i) in.push_back(i % 2 == 0 ? special : -special);
    int failures = 0;
    for (const float x : in)
      for (int turn = 0; turn < 6; ++turn, ++at) {
        const RandomStream draws(at, "policy");
        CastPolicy policy;
        policy.rounding = static_cast<RoundingMode>(draws.below(0, 8));
        policy.overflow = static_cast<OverflowPolicy>(draws.below(1, 4));
        policy.subnormals = static_cast<SubnormalPolicy>(draws.below(2, 3));
        policy.infinity = static_cast<InfinityPolicy>(draws.below(3, 5));
        policy.nan = static_cast<NanPolicy>(draws.below(4, 5));
        policy.unsigned_target = static_cast<UnsignedPolicy>(draws.below(5, 3));
        if (f.has_sign) policy.max_magnitude = kLimits[draws.below(6, std::size(kLimits))];
        const std::uint32_t random = draws.bits32(28);
        const CastResult wanted = expected_cast(f, policy, x, random);
        const CastResult got = cast(f, policy, x, random);
        if (text_of(wanted) != text_of(got) && ++failures <= 10)
          UNSCOPED_INFO(fmt::format("{:a} by {}, policy {}: expected {}, got {}", x,
                                    to_string(policy.rounding), at, text_of(wanted), text_of(got)));
      }
    INFO(f.name);
    CHECK(failures == 0);
  }
}

TEST_CASE("what is below a significand counts as one more bit of it", "[cast]") {
  const RandomStream stream(3, "sticky");
  int ties = 0;
  int failures = 0;
  std::uint64_t at = 0;
  for (const Format& f : kFormats)
    for (int turn = 0; turn < 4000; ++turn, at += 16) {
      // Of more bits than the format keeps, mostly with a half or nothing below these.
      const int bits = f.mantissa_bits + 3 + static_cast<int>(stream.below(at, 8));
      std::uint64_t significand =
          (std::uint64_t{1} << (bits - 1)) | (stream.bits32(4 * at + 4) & 7);
      const int low = bits - 1 - f.mantissa_bits;
      if (turn % 4 != 0) significand = significand >> low << low;
      if (turn % 4 == 1) significand |= std::uint64_t{1} << (low - 1);
      const int wide =
          static_cast<int>(stream.below(at + 2, static_cast<std::uint64_t>(63 - bits)));
      const int shift = turn % 3 == 0 ? wide : 0;
      const int span = f.max_finite() > 1e30 ? 290 : 60;
      const int exponent =
          static_cast<int>(stream.below(at + 3, static_cast<std::uint64_t>(span))) - span / 2;
      const bool negative = stream.below(at + 5, 2) == 0;
      CastPolicy policy = turn % 2 == 0 ? kNvidiaNosat : kOcpSaturating;
      policy.rounding = static_cast<RoundingMode>(stream.below(at + 6, 6));
      const Exact sticky{significand << shift, exponent - shift - bits, negative, true};
      const Exact longer{(significand << shift) * 2 + 1, exponent - shift - bits - 1, negative,
                         false};
      const Exact plain{significand << shift, exponent - shift - bits, negative, false};
      const CastResult wanted = round_and_pack(f, policy, longer);
      const CastResult got = round_and_pack(f, policy, sticky);
      ties += round_and_pack(f, policy, plain).tie ? 1 : 0;
      if (text_of(wanted) != text_of(got) && ++failures <= 10)
        UNSCOPED_INFO(fmt::format("{} of {:x} * 2^{} by {}: expected {}, got {}", f.name,
                                  sticky.significand, sticky.exponent, to_string(policy.rounding),
                                  text_of(wanted), text_of(got)));
    }
  CHECK(failures == 0);
  CHECK(ties > 5000);
}
