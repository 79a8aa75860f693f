// Every rounding mode into signed formats of at most eight bits: the codes of a block's four
// vectors are rounded in 32-bit lanes and finished as bytes; included once for each target.

#include <bit>
#include <cstdint>

#include "fp8lab/cast/kernels/philox-inl.hpp"

#if defined(FP8LAB_CAST_ROUNDING_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_CAST_ROUNDING_INL
#undef FP8LAB_CAST_ROUNDING_INL
#else
#define FP8LAB_CAST_ROUNDING_INL
#endif

#if FP8LAB_HAS_CAST_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {

HWY_INLINE U32 multiply_add(U32 a, U32 b, U32 c) {
  return as<std::uint32_t>(hn::MulAdd(as<float>(a), as<float>(b), as<float>(c)));
}
/// The smaller one; `a` where that is NaN.
HWY_INLINE U32 min_or_nan(U32 limit, U32 a) {
  return as<std::uint32_t>(min_or_second(as<float>(limit), as<float>(a)));
}

/// Modes that take the magnitude without its lowest bit, which decides nothing in them.
constexpr bool takes_even(RoundingMode mode) {
  return mode == RoundingMode::nearest_away || mode == RoundingMode::toward_zero;
}

/// Modes whose direction hangs on the sign. They take one step less than the magnitude rounded up
/// and put it back.
constexpr bool is_directed(RoundingMode mode) {
  return mode == RoundingMode::upward || mode == RoundingMode::downward;
}

/// The plan in registers, or in the first-level cache: its address never leaves the loop.
struct RoundingConstants {
  U32 no_sign;
  U32 even;  ///< neither sign nor lowest bit
  U32 field_mask;
  U32 hidden;
  U32 one;
  U32 width;
  U32 scale;
  U32 nonzero_from;
  U32 past_last;
  U32 min_normal;
  U32 small_value;
  U32 half_step;   ///< of the subnormals
  U32 multiplier;  ///< takes a step at the magnitude to the last bit of its binade's power of two
  I16 weights;     ///< of the words of the rounded sum: its integer's and its exponent's
  I16 first;       ///< the word of code 0
  I16 word_step;   ///< shifts a word down to its code as the upper half of a product
  U32 min_normal_dropped;  ///< as in `GeneralConstants`
  U8 last_code;
  U8 overflow_code;
  U8 nan_code;
  U8 nan_sign_mask;
  U8 sign_mask;
  int sign_shift;
  bool plain;  ///< eight bits wide
  bool no_negative_zero;

  HWY_INLINE RoundingConstants(const RoundingPlan& plan, RoundingMode mode, float factor)
      : RoundingConstants(plan, mode, factor, static_cast<std::uint32_t>(plan.mantissa_bits)) {}

 private:
  static HWY_INLINE std::uint32_t multiplier_offset(RoundingMode mode) {
    if (mode == RoundingMode::nearest_even) return 0;
    return takes_even(mode) ? 1 : 0u - 1;
  }
  HWY_INLINE RoundingConstants(const RoundingPlan& plan, RoundingMode mode, float factor,
                               std::uint32_t mantissa_bits)
      : no_sign(opaque_words(0x7fffffff)),
        even(opaque_words(0x7ffffffe)),
        field_mask(opaque_words(0x7f800000)),
        hidden(opaque_words(0x800000)),
        one(opaque_words(1)),
        width(opaque_words(32)),
        scale(set_words(std::bit_cast<std::uint32_t>(factor))),
        nonzero_from(set_words(plan.nonzero_from)),
        past_last(set_words(std::bit_cast<std::uint32_t>(plan.past_last))),
        min_normal(set_words(plan.min_field << 23)),
        small_value(set_words(plan.small_value)),
        half_step(set_words((plan.min_field - mantissa_bits - 1) << 23)),
        multiplier(set_words(((127 - 23 + mantissa_bits) << 23) + multiplier_offset(mode))),
        weights(as<std::int16_t>(set_words(1u << 16 | 1u << (7 - mantissa_bits)))),
        first(set<std::int16_t>((plan.min_field << 7) -
                                (is_directed(mode) ? 1u << (7 - mantissa_bits) : 0))),
        word_step(set<std::int16_t>(1u << (9 + mantissa_bits))),
        min_normal_dropped(set_words(23 - mantissa_bits + plan.min_field)),
        last_code(set<std::uint8_t>(plan.last_code)),
        overflow_code(set<std::uint8_t>(plan.overflow_code)),
        nan_code(set<std::uint8_t>(plan.nan_code)),
        nan_sign_mask(set<std::uint8_t>(plan.nan_sign_mask)),
        sign_mask(set<std::uint8_t>(plan.sign_mask)),
        sign_shift(std::countl_zero(plan.sign_mask)),
        plain(plan.sign_mask == 0x80),
        no_negative_zero(plan.no_negative_zero) {}
};

struct RoundingCounts {
  /// Added to magnitudes, it makes those of NaN negative.
  static constexpr std::uint32_t kNanWraps = 0x007fffff;

  I32 amax;
  U32 zero;
  std::uint64_t past_last = 0;  ///< NaN elements are in it
  std::uint64_t small = 0;      ///< zeros are in it
  std::uint64_t nan = 0;

  HWY_INLINE RoundingCounts() : amax(set<std::int32_t>(kNanWraps)), zero(set_words(0)) {}
};

/// The lanes whose magnitude is rounded down where rounding depends on the sign: all zeros are
/// among them, but no number that only becomes zero because subnormals are ignored.
template <RoundingMode kMode>
HWY_INLINE Mask rounds_magnitude_down(const RoundingConstants& c, U32 unscaled) {
  const U32 upward =
      kMode == RoundingMode::downward ? hn::Xor(unscaled, set_words(0x80000000)) : unscaled;
  return greater(c.nonzero_from, upward);
}

/// The code of a magnitude, less that of zero, in the upper bits of a word (see nearest_words).
///
/// The sum's last bit is one step of the format in the magnitude's binade, m its power of two. The
/// sum is rounded to nearest even, and every mode comes down to that. Let a unit be the magnitude's
/// last bit. Where the multiplier is larger by 2^-23, an even magnitude grows by one unit or more
/// and less than two, so that it passes a tie or a step only where it was on it; where it is
/// smaller by 2^-24, any magnitude shrinks by less than one unit, and falls behind a tie or a step
/// only where it was on it. With m's predecessor in place of m, the sum is half a step lower. So
///   nearest, ties away:          larger multiplier, m
///   nearest, ties toward zero:   smaller multiplier, m
///   floor(magnitude):            larger multiplier, m's predecessor
///   ceil(magnitude) - 1:         smaller multiplier, m's predecessor
/// and floor(magnitude) is ceil(the next magnitude) - 1, for modes that need both.
///
/// `kClear`: the magnitude may still be odd.
template <RoundingMode kMode, bool kClear>
HWY_INLINE U32 rounded_words(const RoundingConstants& c, U32 magnitude, Mask down) {
  constexpr bool kDirected = is_directed(kMode);
  const U32 normal = hn::Max(min_or_nan(c.past_last, magnitude), c.min_normal);
  U32 magic = hn::And(normal, c.field_mask);
  if constexpr (kDirected || kMode == RoundingMode::toward_zero) magic = hn::Sub(magic, c.one);
  U32 x = hn::Min(kClear ? hn::And(magnitude, c.even) : magnitude, c.past_last);
  // Below half a step the sum might stay at m's predecessor, where a step is another.
  if constexpr (kDirected) x = count_lanes(hn::Max(x, c.half_step), down);
  U32 sum = multiply_add(x, c.multiplier, magic);
  if constexpr (kDirected) sum = less_one(sum, down);
  return as<std::uint32_t>(weigh_words(as<std::int16_t>(sum), c.weights));
}

/// The code of a magnitude, above every code where it is NaN (see round_magnitude; what has no
/// hidden bit in binary32 is far below all steps).
HWY_INLINE U32 stochastic_codes(const RoundingConstants& c, U32 magnitude, U32 random) {
  const U32 clamped = min_or_nan(c.past_last, magnitude);
  const U32 field_bits = hn::And(hn::Min(clamped, c.min_normal), c.field_mask);
  const U32 field = hn::ShiftRight<23>(field_bits);
  const U32 significand = hn::Add(hn::Sub(clamped, field_bits), c.hidden);
  return cut_stochastically(significand, hn::Sub(c.min_normal_dropped, field), random, c.width);
}

template <RoundingMode kMode, bool kPreserve, bool kScaled, bool kGather>
HWY_INLINE U32 rounded_lanes(const RoundingConstants& c, U32 unscaled, U32 random, U32& scaled,
                             RoundingCounts& counts) {
  scaled = kScaled ? multiply(unscaled, c.scale) : unscaled;
  // NaN products are quiet: without the lowest bit they stay NaN, which inputs may not.
  U32 magnitude = hn::And(scaled, kScaled && takes_even(kMode) ? c.even : c.no_sign);
  const U32 unscaled_magnitude = hn::And(unscaled, c.no_sign);
  Mask down = no_lanes();
  if constexpr (is_directed(kMode)) down = rounds_magnitude_down<kMode>(c, unscaled);
  if constexpr (!kPreserve) {
    const Mask small = greater(c.min_normal, magnitude);
    const Mask zero = greater(c.nonzero_from, unscaled_magnitude);
    magnitude = hn::IfThenElse(small, hn::IfThenElse(zero, set_words(0), c.small_value), magnitude);
    down = hn::Or(down, small);
  }
  if constexpr (kGather) {
    counts.amax = hn::Max(
        counts.amax,
        as<std::int32_t>(hn::Add(unscaled_magnitude, set_words(RoundingCounts::kNanWraps))));
    counts.zero = count_lanes(counts.zero, hn::Eq(unscaled_magnitude, set_words(0)));
  }
  if constexpr (kMode == RoundingMode::stochastic) return stochastic_codes(c, magnitude, random);
  constexpr bool kClear = takes_even(kMode) && !kScaled;
  return rounded_words<kMode, kClear>(c, magnitude, down);
}

/// Codes in the making, in words and then bytes. The words of magnitudes: negative ones stand for
/// zero, large ones for NaN. Signs are the top bits. Lanes of 128 bits are interleaved.
struct RoundedCodes {
  I16 magnitude;
  I16 sign;
};

/// Two vectors of elements.
template <RoundingMode kMode, bool kPreserve, bool kScaled, bool kGather>
HWY_INLINE RoundedCodes rounded_pair(const RoundingConstants& c, const float* in, U32 random_a,
                                     U32 random_b, RoundingCounts& counts) {
  U32 scaled_a;
  U32 scaled_b;
  const U32 a = rounded_lanes<kMode, kPreserve, kScaled, kGather>(c, load_words(in), random_a,
                                                                  scaled_a, counts);
  const U32 b = rounded_lanes<kMode, kPreserve, kScaled, kGather>(c, load_words(in + kLanes),
                                                                  random_b, scaled_b, counts);
  I16 words = join_words(as<std::int32_t>(a), as<std::int32_t>(b));
  if constexpr (kMode != RoundingMode::stochastic)
    words = hn::MulHigh(hn::Sub(words, c.first), c.word_step);
  return {words, join_words(as<std::int32_t>(scaled_a), as<std::int32_t>(scaled_b))};
}

/// The codes of four vectors, in order.
template <bool kGather>
HWY_INLINE U8 rounded_bytes(const RoundingConstants& c, const RoundedCodes& low,
                            const RoundedCodes& high, RoundingCounts& counts) {
  const Tag<std::uint8_t> d;
  const U8 magnitude = join_unsigned_bytes(low.magnitude, high.magnitude);
  const auto zero = hn::Eq(magnitude, zeros<std::uint8_t>());
  U8 sign = as<std::uint8_t>(join_bytes(low.sign, high.sign));
  if (!c.plain) sign = as<std::uint8_t>(hn::ShiftRightSame(as<std::uint16_t>(sign), c.sign_shift));
  sign = hn::And(sign, c.sign_mask);
  if (c.no_negative_zero) sign = hn::IfThenZeroElse(zero, sign);
  if constexpr (kGather) {
    counts.past_last += hn::CountTrue(d, hn::Gt(magnitude, c.last_code));
    counts.small += hn::CountTrue(d, zero);
    counts.nan += hn::CountTrue(d, hn::Gt(magnitude, set<std::uint8_t>(0x80)));
  }
  const U8 number = hn::Or(hn::Min(magnitude, c.overflow_code), sign);
  const U8 nan = hn::Xor(hn::And(sign, c.nan_sign_mask), c.nan_code);
#if FP8LAB_HAS_MASKS
  const U8 code = hn::IfThenElse(hn::Gt(magnitude, set<std::uint8_t>(0x80)), nan, number);
#else
  const U8 above = hn::SaturatedSub(magnitude, set<std::uint8_t>(1));
  const U8 code = as<std::uint8_t>(hn::IfNegativeThenElse(
      as<std::int8_t>(above), as<std::int8_t>(nan), as<std::int8_t>(number)));
#endif
  return in_order<4>(code);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CAST_KERNELS
#endif  // once for each target
