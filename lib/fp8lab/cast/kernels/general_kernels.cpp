// The integer kernel: unpack, round, pack in 32-bit lanes, for every rounding mode, policy and
// format of at most 16 bits. It follows `round_and_pack` of cast.hpp step by step.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/cast/kernels/general_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/cast/kernels/philox-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_CAST_KERNELS
namespace {

HWY_INLINE Mask all_lanes(bool value) { return hn::MaskFromVec(set_words(value ? 0xffffffff : 0)); }
HWY_INLINE Mask negative(U32 v) {
  return hn::RebindMask(Tag<std::uint32_t>(), hn::Lt(as<std::int32_t>(v), zeros<std::int32_t>()));
}
HWY_INLINE I16 join_codes(U32 a, U32 b) {
  return join_words(as<std::int32_t>(a), as<std::int32_t>(b));
}
/// Four vectors of codes, in order.
HWY_INLINE void store_codes(const U32 (&codes)[4], std::uint8_t* to) {
  const U8 joined =
      join_unsigned_bytes(join_codes(codes[0], codes[1]), join_codes(codes[2], codes[3]));
  hn::StoreU(in_order<4>(joined), Tag<std::uint8_t>(), to);
}
HWY_INLINE void store_codes(const U32 (&codes)[4], std::uint16_t* to) {
  for (std::size_t v = 0; v < 4; v += 2) {
    const U16 joined =
        join_unsigned_words(as<std::int32_t>(codes[v]), as<std::int32_t>(codes[v + 1]));
    hn::StoreU(as<std::uint16_t>(in_order<2>(joined)), Tag<std::uint16_t>(), to + v * kLanes);
  }
}

struct GeneralCounts {
  U32 amax;
  U32 overflowed;
  U32 underflowed;
  U32 nan;
};

/// The plan in registers, or in the first-level cache: its address never leaves the loop.
struct GeneralConstants {
  U32 scale;
  U32 min_field;
  U32 min_normal;
  U32 mantissa_bits;
  U32 normal_dropped;      ///< bits of a significand below the last kept one, above min normal
  U32 min_normal_dropped;  ///< the same and the exponent field of min normal
  U32 field_offset;
  U32 last_code;
  U32 overflow_code;
  U32 infinity_code;
  U32 small_code;
  U32 small_below;
  U32 sign_shift;
  U32 sign_mask;
  U32 nan_code;
  U32 nan_sign_mask;
  Mask overflow_is_nan;
  Mask infinity_is_nan;
  Mask no_negative_zero;
  Mask unsigned_nan;

  HWY_INLINE GeneralConstants(const GeneralPlan& plan, std::uint32_t mantissa, float factor)
      : scale(set_words(std::bit_cast<std::uint32_t>(factor))),
        min_field(set_words(plan.min_field)),
        min_normal(set_words(plan.min_field << 23)),
        mantissa_bits(set_words(mantissa)),
        normal_dropped(set_words(23 - mantissa)),
        min_normal_dropped(set_words(23 - mantissa + plan.min_field)),
        field_offset(set_words(plan.field_offset)),
        last_code(set_words(plan.last_code)),
        overflow_code(set_words(plan.overflow_code)),
        infinity_code(set_words(plan.infinity_code)),
        small_code(set_words(plan.small_code)),
        small_below(set_words(plan.small_below)),
        sign_shift(set_words(plan.sign_shift)),
        sign_mask(set_words(plan.sign_mask)),
        nan_code(set_words(plan.nan_code)),
        nan_sign_mask(set_words(plan.nan_sign_mask)),
        overflow_is_nan(all_lanes(plan.overflow_is_nan)),
        infinity_is_nan(all_lanes(plan.infinity_is_nan)),
        no_negative_zero(all_lanes(plan.no_negative_zero)),
        unsigned_nan(all_lanes(plan.unsigned_nan)) {}
};

/// What is added to the significand so that cutting `dropped` bits off rounds it.
template <RoundingMode kMode>
HWY_INLINE U32 rounding_term(U32 significand, U32 dropped, U32 sign) {
  const U32 one = set_words(1);
  const U32 below = hn::Sub(hn::Shl(one, dropped), one);
  const U32 under_half = hn::ShiftRight<1>(below);
  switch (kMode) {
    case RoundingMode::nearest_even:
      return hn::Add(under_half, hn::And(hn::Shr(significand, dropped), one));
    case RoundingMode::nearest_away:
      return hn::Add(under_half, one);
    case RoundingMode::nearest_toward_zero:
      return under_half;
    case RoundingMode::toward_zero:
      return set_words(0);
    case RoundingMode::upward:
      return hn::IfThenElse(hn::Eq(sign, set_words(0)), below, set_words(0));
    case RoundingMode::downward:
      return hn::IfThenElse(hn::Eq(sign, set_words(0)), set_words(0), below);
    case RoundingMode::stochastic:
    case RoundingMode::to_odd:  // of the scalar reference alone
      break;
  }
  return set_words(0);
}

/// The significand without its `dropped` bits, rounded.
template <RoundingMode kMode>
HWY_INLINE U32 cut_rounded(U32 significand, U32 dropped, U32 sign, U32 random) {
  if constexpr (kMode == RoundingMode::stochastic)
    return cut_stochastically(significand, dropped, random);
  // The significand has 24 bits: cutting off 31 leaves nothing and is never a tie.
  const U32 cut = hn::Min(dropped, set_words(31));
  return hn::Shr(hn::Add(significand, rounding_term<kMode>(significand, cut, sign)), cut);
}

/// The magnitude of the code, before overflow and special values.
template <RoundingMode kMode>
HWY_INLINE U32 round_magnitude(const GeneralConstants& c, U32 magnitude, U32 sign, U32 random) {
  const U32 zero = set_words(0);
  const U32 field = hn::ShiftRight<23>(magnitude);
  const Mask no_hidden = hn::Eq(field, zero);
  const U32 fraction = hn::And(magnitude, set_words(0x7fffff));
  const U32 significand = hn::Or(fraction, hn::IfThenElse(no_hidden, zero, set_words(0x800000)));
  const U32 binade = hn::Max(field, c.min_field);
  const U32 dropped = hn::Add(hn::Sub(binade, hn::Max(field, set_words(1))), c.normal_dropped);
  const U32 kept = cut_rounded<kMode>(significand, dropped, sign, random);
  const U32 steps = hn::Shl(hn::Sub(binade, c.min_field), c.mantissa_bits);
  return hn::Sub(hn::Max(hn::Add(kept, steps), c.field_offset), c.field_offset);
}

/// The same for formats with a mantissa, whose steps from binade to binade are even. These stand
/// above the significand from the start.
template <RoundingMode kMode>
HWY_INLINE U32 round_plain_magnitude(const GeneralConstants& c, U32 magnitude, U32 sign,
                                     U32 random) {
  const U32 hidden = set_words(0x800000);
  const U32 field_bits =
      hn::And(hn::Max(hn::Min(magnitude, c.min_normal), hidden), set_words(0x7f800000));
  // Binary32's subnormals are below `field_bits`: they get back what they lack, no hidden bit.
  const U32 significand = hn::Add(hn::Sub(magnitude, field_bits), hidden);
  const U32 dropped = hn::Sub(c.min_normal_dropped, hn::ShiftRight<23>(field_bits));
  return cut_rounded<kMode>(significand, dropped, sign, random);
}

/// `kPlain`: subnormals are kept and zeros and signs are IEEE 754's.
template <RoundingMode kMode, bool kPlain, bool kGather>
HWY_INLINE U32 encode_lanes(const GeneralConstants& c, U32 unscaled_bits, U32 random,
                            GeneralCounts& counts) {
  const U32 zero = set_words(0);
  const U32 infinity = set_words(0x7f800000);
  const U32 unscaled = hn::And(unscaled_bits, set_words(0x7fffffff));
  const U32 x = multiply(unscaled_bits, c.scale);
  const U32 magnitude = hn::And(x, set_words(0x7fffffff));
  const U32 sign = hn::And(hn::Shr(x, c.sign_shift), c.sign_mask);

  U32 code;
  if constexpr (kPlain) {
    code = round_plain_magnitude<kMode>(c, magnitude, sign, random);
  } else {
    code = round_magnitude<kMode>(c, magnitude, sign, random);
    const Mask small = hn::AndNot(hn::Eq(magnitude, zero), greater(c.small_below, magnitude));
    code = hn::IfThenElse(small, c.small_code, code);
  }
  const Mask is_nan = greater(magnitude, infinity);
  const Mask is_infinite = hn::Eq(magnitude, infinity);
  const Mask too_large = greater(code, c.last_code);
  code = hn::IfThenElse(too_large, c.overflow_code, code);
  code = hn::IfThenElse(is_infinite, c.infinity_code, code);
  const Mask is_zero = hn::Eq(code, zero);
  U32 kept_sign = sign;
  if constexpr (!kPlain)
    kept_sign = hn::IfThenElse(hn::And(is_zero, c.no_negative_zero), zero, sign);
  code = hn::Or(code, kept_sign);
  const U32 nan_code = hn::Xor(c.nan_code, hn::And(sign, c.nan_sign_mask));
  code = hn::IfThenElse(is_nan, nan_code, code);
  Mask not_positive = no_lanes();
  if constexpr (!kPlain) {
    const Mask zero_or_negative = hn::Or(hn::Eq(magnitude, zero), negative(x));
    not_positive = hn::And(hn::AndNot(is_nan, zero_or_negative), c.unsigned_nan);
    code = hn::IfThenElse(not_positive, c.nan_code, code);
  }
  if constexpr (kGather) {
    const Mask finite_overflow = hn::AndNot(hn::Or(is_nan, is_infinite), too_large);
    const Mask overflow = hn::AndNot(not_positive, hn::Or(finite_overflow, is_infinite));
    const Mask overflow_nan = hn::Or(hn::And(finite_overflow, c.overflow_is_nan),
                                     hn::And(is_infinite, c.infinity_is_nan));
    const Mask nan = hn::Or(hn::Or(is_nan, not_positive), hn::And(overflow, overflow_nan));
    const Mask input_nan = greater(unscaled, infinity);
    counts.amax = hn::Max(counts.amax, hn::IfThenElse(input_nan, zero, unscaled));
    counts.overflowed = count_lanes(counts.overflowed, overflow);
    counts.nan = count_lanes(counts.nan, nan);
    const Mask lost = hn::AndNot(hn::Or(nan, hn::Eq(unscaled, zero)), is_zero);
    counts.underflowed = count_lanes(counts.underflowed, lost);
  }
  return code;
}

/// Whole blocks of 4 vectors; `in` and `out` need no alignment. `counter` gives the first block's
/// draws where rounding is stochastic.
template <RoundingMode kMode, bool kPlain, bool kGather, typename Code>
HWY_NOINLINE void encode_general_blocks(const EncodeTask& task, const float* in, Code* out,
                                        std::size_t blocks, std::uint64_t counter,
                                        GeneralCounts& counts) {
  constexpr std::size_t kFarAhead = 128 * kLanes;
  constexpr bool kStochastic = kMode == RoundingMode::stochastic;
  const GeneralConstants c(task.plan->general_plan,
                           static_cast<std::uint32_t>(task.plan->format->mantissa_bits),
                           task.scale);
  GeneralCounts sums = counts;
  Philox philox(kStochastic ? *task.random : RandomStream(0, 0), counter);
  for (; blocks > 0; --blocks, in += kBlock, out += kBlock) {
    if (task.stream) {
      for (std::size_t line = 0; line < kBlock; line += 16) prefetch_far(in + kFarAhead + line);
    }
    U32 random[4] = {};
    if constexpr (kStochastic) philox.draw(random);
    const auto lanes = [&](std::size_t v) HWY_ATTR __attribute__((always_inline)) {
      return encode_lanes<kMode, kPlain, kGather>(c, load_words(in + v * kLanes), random[v], sums);
    };
    const U32 codes[4] = {lanes(0), lanes(1), lanes(2), lanes(3)};
    store_codes(codes, out);
  }
  counts = sums;
}

/// What a call is cut into: part of a block up to the first counter, blocks, and a rest.
template <RoundingMode kMode, bool kPlain, bool kGather, typename Code>
EncodeStatistics encode_general(const EncodeTask& task) {
  const U32 zero = set_words(0);
  GeneralCounts counts{zero, zero, zero, zero};
  std::size_t padding = 0;
  // `skip` draws of the counter belong to elements before these.
  const auto part = [&](std::size_t at, std::size_t count, std::size_t skip) {
    std::array<float, kBlock> in{};
    std::array<Code, kBlock> codes;
    std::memcpy(in.data() + skip, task.in + at, count * sizeof(float));
    encode_general_blocks<kMode, kPlain, kGather>(task, in.data(), codes.data(), 1,
                                                  (task.first_draw + at) / 4, counts);
    std::memcpy(static_cast<Code*>(task.out) + at, codes.data() + skip, count * sizeof(Code));
    padding += kBlock - count;
  };
  const std::size_t skip = kMode == RoundingMode::stochastic ? task.first_draw % 4 : 0;
  const std::size_t head = skip == 0 ? 0 : std::min(4 - skip, task.count);
  if (head != 0) part(0, head, skip);
  const std::size_t blocks = (task.count - head) / kBlock;
  encode_general_blocks<kMode, kPlain, kGather>(task, task.in + head,
                                                static_cast<Code*>(task.out) + head, blocks,
                                                (task.first_draw + head) / 4, counts);
  const std::size_t done = head + blocks * kBlock;
  if (done != task.count) part(done, task.count - done, 0);

  EncodeStatistics statistics;
  statistics.amax = max_lanes(as<std::int32_t>(counts.amax));
  if (task.statistics != GatherStatistics::all) return statistics;
  statistics.overflowed = sum_lanes(counts.overflowed);
  // Scale-only formats have no zero: their code 0 is a number.
  if (task.plan->general_plan.field_offset == 0)
    statistics.underflowed = sum_lanes(counts.underflowed);
  // The zeros that pad parts of blocks are NaN where zero has no code.
  statistics.nan = sum_lanes(counts.nan) - (task.plan->general_plan.unsigned_nan ? padding : 0);
  return statistics;
}

template <RoundingMode kMode, typename Code>
EncodeStatistics encode_general(const EncodeTask& task) {
  // The plain form, for the casts to FP16 and BF16 that systems make; they alone come here often.
  const GeneralPlan& plan = task.plan->general_plan;
  constexpr bool kMayBePlain = sizeof(Code) == 2;
  const bool gather = task.statistics != GatherStatistics::none;
  if (kMayBePlain && plan.small_below == 0)
    return gather ? encode_general<kMode, kMayBePlain, true, Code>(task)
                  : encode_general<kMode, kMayBePlain, false, Code>(task);
  return gather ? encode_general<kMode, false, true, Code>(task)
                : encode_general<kMode, false, false, Code>(task);
}

template <typename Code>
EncodeStatistics encode_general(const EncodeTask& task) {
  switch (task.plan->policy.rounding) {
    case RoundingMode::nearest_even:
      return encode_general<RoundingMode::nearest_even, Code>(task);
    case RoundingMode::nearest_away:
      return encode_general<RoundingMode::nearest_away, Code>(task);
    case RoundingMode::nearest_toward_zero:
      return encode_general<RoundingMode::nearest_toward_zero, Code>(task);
    case RoundingMode::toward_zero:
      return encode_general<RoundingMode::toward_zero, Code>(task);
    case RoundingMode::upward:
      return encode_general<RoundingMode::upward, Code>(task);
    case RoundingMode::downward:
      return encode_general<RoundingMode::downward, Code>(task);
    case RoundingMode::stochastic:
    case RoundingMode::to_odd:  // of the scalar reference alone
      break;
  }
  return encode_general<RoundingMode::stochastic, Code>(task);
}

EncodeStatistics encode_task(const EncodeTask& task) {
  return task.plan->format->code_bits() <= 8 ? encode_general<std::uint8_t>(task)
                                             : encode_general<std::uint16_t>(task);
}

}  // namespace

const GeneralKernels* general_kernels() {
  static constexpr GeneralKernels kTable{encode_task};
  return &kTable;
}

#else
const GeneralKernels* general_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::cast_kernels {

FP8LAB_TABLE_OF_TARGET(GeneralKernels, general_kernels)

}  // namespace fp8lab::cast_kernels
#endif
