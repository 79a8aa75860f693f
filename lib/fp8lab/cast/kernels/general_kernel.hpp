// The integer kernel: unpack, round, pack in 32-bit lanes, for every rounding mode, policy and
// format of at most 16 bits. It follows `round_and_pack` of cast.hpp step by step.
// Included inside a target region, after that target's `Ops`.

namespace fp8lab::cast_kernels {
namespace {

using U32 = Ops::U32;
using Mask = Ops::Mask;

FP8LAB_INLINE std::uint32_t low(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
FP8LAB_INLINE std::uint32_t high(std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); }

/// Draws of consecutive indices, `kDraws` a refill: Philox4x32-10 as in core/random.cpp.
struct DrawBuffer {
  static constexpr std::size_t kDraws = 4 * Ops::kLanes;
  alignas(64) std::array<std::uint32_t, 2 * kDraws> words;
  std::uint64_t seed;
  std::uint64_t stream;
  std::uint64_t next_counter;

  FP8LAB_INLINE void refill(std::uint32_t* to) {
    const U32 first = Ops::set1(low(next_counter));
    U32 c0 = Ops::add(first, Ops::counter_offsets());
    const Mask wrapped = Ops::greater(first, c0);
    const U32 top = Ops::set1(high(next_counter));
    U32 c1 = Ops::select(wrapped, Ops::add(top, Ops::set1(1)), top);
    U32 c2 = Ops::set1(low(stream));
    U32 c3 = Ops::set1(high(stream));
    std::uint32_t k0 = low(seed);
    std::uint32_t k1 = high(seed);
    for (int round = 0; round < 10; ++round) {
      U32 high0, low0, high1, low1;
      Ops::multiply_wide(c0, Ops::set1(0xd2511f53u), high0, low0);
      Ops::multiply_wide(c2, Ops::set1(0xcd9e8d57u), high1, low1);
      c0 = Ops::bit_xor(Ops::bit_xor(high1, c1), Ops::set1(k0));
      c2 = Ops::bit_xor(Ops::bit_xor(high0, c3), Ops::set1(k1));
      c1 = low1;
      c3 = low0;
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    Ops::store_draws(to, c0, c1, c2, c3);
    next_counter += Ops::kLanes;
  }
};

struct GeneralCounts {
  U32 amax;
  U32 overflowed;
  U32 underflowed;
  U32 nan;
};

/// What is added to the significand so that cutting `dropped` bits off rounds it.
template <RoundingMode kMode>
FP8LAB_INLINE U32 rounding_term(U32 significand, U32 dropped, U32 sign, U32 random) {
  const U32 one = Ops::set1(1);
  const U32 below = Ops::sub(Ops::shift_left(one, dropped), one);
  const U32 under_half = Ops::shift_right<1>(below);
  switch (kMode) {
    case RoundingMode::nearest_even:
      return Ops::add(under_half, Ops::bit_and(Ops::shift_right(significand, dropped), one));
    case RoundingMode::nearest_away:
      return Ops::add(under_half, one);
    case RoundingMode::nearest_toward_zero:
      return under_half;
    case RoundingMode::toward_zero:
      return Ops::set1(0);
    case RoundingMode::upward:
      return Ops::select(Ops::equal(sign, Ops::set1(0)), below, Ops::set1(0));
    case RoundingMode::downward:
      return Ops::select(Ops::equal(sign, Ops::set1(0)), Ops::set1(0), below);
    case RoundingMode::stochastic:
      break;
  }
  (void)random;
  return Ops::set1(0);
}

/// One where the discarded fraction, as 32 bits, carries when `random` is added.
FP8LAB_INLINE U32 stochastic_carry(U32 significand, U32 dropped, U32 random) {
  const U32 width = Ops::set1(32);
  const U32 left = Ops::sub(width, Ops::min(dropped, width));
  const U32 right = Ops::min(Ops::sub(Ops::max(dropped, width), width), Ops::set1(31));
  const U32 fraction = Ops::shift_right(Ops::shift_left(significand, left), right);
  const U32 sum = Ops::add(fraction, random);
  return Ops::select(Ops::greater(random, sum), Ops::set1(1), Ops::set1(0));
}

/// The magnitude of the code, before overflow and special values.
template <RoundingMode kMode>
FP8LAB_INLINE U32 round_magnitude(const GeneralPlan& plan, int mantissa_bits, U32 magnitude,
                                  U32 sign, U32 random) {
  const U32 zero = Ops::set1(0);
  const U32 hidden = Ops::set1(0x800000);
  const U32 field = Ops::shift_right<23>(magnitude);
  const Mask no_hidden = Ops::equal(field, zero);
  const U32 fraction = Ops::bit_and(magnitude, Ops::set1(0x7fffff));
  const U32 significand = Ops::bit_or(fraction, Ops::select(no_hidden, zero, hidden));
  const U32 exponent = Ops::max(field, Ops::set1(1));
  const U32 binade = Ops::max(field, Ops::set1(plan.min_field));
  const U32 dropped = Ops::add(Ops::sub(binade, exponent),
                               Ops::set1(23u - static_cast<std::uint32_t>(mantissa_bits)));
  // The significand has 24 bits: cutting off 31 leaves nothing and is never a tie.
  const U32 cut = Ops::min(dropped, Ops::set1(31));
  const U32 term = rounding_term<kMode>(significand, cut, sign, random);
  U32 kept = Ops::shift_right(Ops::add(significand, term), cut);
  if constexpr (kMode == RoundingMode::stochastic)
    kept = Ops::add(kept, stochastic_carry(significand, dropped, random));
  const U32 steps = Ops::shift_left(Ops::sub(binade, Ops::set1(plan.min_field)),
                                    Ops::set1(static_cast<std::uint32_t>(mantissa_bits)));
  const U32 offset = Ops::set1(plan.field_offset);
  return Ops::sub(Ops::max(Ops::add(kept, steps), offset), offset);
}

template <RoundingMode kMode>
FP8LAB_INLINE U32 encode_lanes(const EncodePlan& encode_plan, U32 x, float scale, U32 random,
                               GeneralCounts& counts) {
  const GeneralPlan& plan = encode_plan.general_plan;
  const U32 zero = Ops::set1(0);
  const U32 infinity = Ops::set1(0x7f800000);
  const U32 unscaled = Ops::bit_and(x, Ops::set1(0x7fffffff));
  if (scale != 1.0f) x = Ops::multiply(x, scale);
  const U32 magnitude = Ops::bit_and(x, Ops::set1(0x7fffffff));
  const U32 sign =
      Ops::bit_and(Ops::shift_right(x, Ops::set1(plan.sign_shift)), Ops::set1(plan.sign_mask));

  U32 code =
      round_magnitude<kMode>(plan, encode_plan.format->mantissa_bits, magnitude, sign, random);
  const Mask small = Ops::but_not(Ops::greater(Ops::set1(plan.small_below), magnitude),
                                  Ops::equal(magnitude, zero));
  code = Ops::select(small, Ops::set1(plan.small_code), code);
  const Mask is_nan = Ops::greater(magnitude, infinity);
  const Mask is_infinite = Ops::equal(magnitude, infinity);
  const Mask finite_overflow =
      Ops::but_not(Ops::greater(code, Ops::set1(plan.last_code)), Ops::either(is_nan, is_infinite));
  code = Ops::select(finite_overflow, Ops::set1(plan.overflow_code), code);
  code = Ops::select(is_infinite, Ops::set1(plan.infinity_code), code);
  const Mask is_zero = Ops::equal(code, zero);
  const U32 kept_sign = plan.no_negative_zero ? Ops::select(is_zero, zero, sign) : sign;
  code = Ops::bit_or(code, kept_sign);
  const U32 nan_code =
      Ops::bit_xor(Ops::set1(plan.nan_code), Ops::bit_and(sign, Ops::set1(plan.nan_sign_mask)));
  code = Ops::select(is_nan, nan_code, code);

  Mask nan = is_nan;
  Mask overflow = Ops::either(finite_overflow, is_infinite);
  if (plan.unsigned_nan) {
    const Mask not_positive = Ops::but_not(
        Ops::either(Ops::equal(magnitude, zero), Ops::greater(x, Ops::set1(0x7fffffff))), is_nan);
    code = Ops::select(not_positive, Ops::set1(plan.nan_code), code);
    nan = Ops::either(nan, not_positive);
    overflow = Ops::but_not(overflow, not_positive);
  }
  if (plan.overflow_is_nan) nan = Ops::either(nan, Ops::both(overflow, finite_overflow));
  if (plan.infinity_is_nan) nan = Ops::either(nan, Ops::both(overflow, is_infinite));
  const Mask input_nan = Ops::greater(unscaled, infinity);
  counts.amax = Ops::max(counts.amax, Ops::select(input_nan, zero, unscaled));
  counts.overflowed = Ops::count(counts.overflowed, overflow);
  counts.nan = Ops::count(counts.nan, nan);
  if (plan.field_offset == 0) {
    const Mask lost = Ops::but_not(is_zero, Ops::either(nan, Ops::equal(unscaled, zero)));
    counts.underflowed = Ops::count(counts.underflowed, lost);
  }
  return code;
}

FP8LAB_INLINE std::uint64_t sum_lanes(U32 v) {
  alignas(64) std::array<std::uint32_t, Ops::kLanes> lanes;
  Ops::store(lanes.data(), v);
  std::uint64_t sum = 0;
  for (const std::uint32_t lane : lanes) sum += lane;
  return sum;
}

FP8LAB_INLINE float max_lanes(U32 v) {
  alignas(64) std::array<std::uint32_t, Ops::kLanes> lanes;
  Ops::store(lanes.data(), v);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  float result;
  std::memcpy(&result, &largest, sizeof result);
  return result;
}

/// Whole blocks of 4 vectors; `in` and `out` need no alignment.
template <RoundingMode kMode, typename Code>
void encode_general_blocks(const EncodeTask& task, const float* in, Code* out, std::size_t blocks,
                           std::uint64_t first_draw, GeneralCounts& counts) {
  constexpr std::size_t kBlock = DrawBuffer::kDraws;
  constexpr bool kStochastic = kMode == RoundingMode::stochastic;
  DrawBuffer draws;
  const std::size_t phase = kStochastic ? first_draw % 4 : 0;
  if constexpr (kStochastic) {
    draws.seed = task.random->seed();
    draws.stream = task.random->stream();
    draws.next_counter = first_draw / 4;
    draws.refill(draws.words.data());
  }
  for (std::size_t block = 0; block < blocks; ++block, in += kBlock, out += kBlock) {
    if constexpr (kStochastic) draws.refill(draws.words.data() + kBlock);
    U32 codes[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const U32 random =
          kStochastic ? Ops::load(draws.words.data() + phase + v * Ops::kLanes) : Ops::set1(0);
      codes[v] = encode_lanes<kMode>(*task.plan, Ops::load(in + v * Ops::kLanes), task.scale,
                                     random, counts);
    }
    if constexpr (kStochastic) {
      for (std::size_t v = 0; v < 4; ++v)
        Ops::store(draws.words.data() + v * Ops::kLanes,
                   Ops::load(draws.words.data() + kBlock + v * Ops::kLanes));
    }
    if constexpr (sizeof(Code) == 1) {
      Ops::store_bytes(out, codes[0], codes[1], codes[2], codes[3]);
    } else {
      Ops::store_words(out, codes[0], codes[1]);
      Ops::store_words(out + 2 * Ops::kLanes, codes[2], codes[3]);
    }
  }
}

template <RoundingMode kMode, typename Code>
EncodeStatistics encode_general(const EncodeTask& task) {
  constexpr std::size_t kBlock = DrawBuffer::kDraws;
  const U32 zero = Ops::set1(0);
  GeneralCounts counts{zero, zero, zero, zero};
  auto* out = static_cast<Code*>(task.out);
  const std::size_t whole = task.count / kBlock;
  encode_general_blocks<kMode>(task, task.in, out, whole, task.first_draw, counts);
  const std::size_t done = whole * kBlock;
  const std::size_t rest = task.count - done;
  if (rest != 0) {
    std::array<float, kBlock> in{};
    std::array<Code, kBlock> codes;
    std::memcpy(in.data(), task.in + done, rest * sizeof(float));
    encode_general_blocks<kMode>(task, in.data(), codes.data(), 1, task.first_draw + done, counts);
    std::memcpy(out + done, codes.data(), rest * sizeof(Code));
  }
  EncodeStatistics statistics;
  if (task.statistics == GatherStatistics::none) return statistics;
  statistics.amax = max_lanes(counts.amax);
  if (task.statistics == GatherStatistics::amax) return statistics;
  statistics.overflowed = sum_lanes(counts.overflowed);
  statistics.underflowed = sum_lanes(counts.underflowed);
  // The zeros that pad the last block are NaN where zero has no code.
  const bool padding_is_nan = task.plan->general_plan.unsigned_nan && rest != 0;
  statistics.nan = sum_lanes(counts.nan) - (padding_is_nan ? kBlock - rest : 0);
  return statistics;
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
      break;
  }
  return encode_general<RoundingMode::stochastic, Code>(task);
}

FP8LAB_INLINE U32 decode_lanes(const Format& f, U32 code, float inverse_scale) {
  const auto exponent_bits = static_cast<std::uint32_t>(127 - f.bias) << 23;
  const U32 magnitude = Ops::bit_and(code, Ops::set1(f.magnitude_mask()));
  const U32 to_mantissa = Ops::set1(static_cast<std::uint32_t>(23 - f.mantissa_bits));
  const U32 normal = Ops::add(Ops::shift_left(magnitude, to_mantissa), Ops::set1(exponent_bits));
  const auto smallest = static_cast<std::uint32_t>(f.min_exponent() - f.mantissa_bits + 127) << 23;
  const U32 subnormal = Ops::multiply(Ops::to_float(magnitude), std::bit_cast<float>(smallest));
  const Mask is_normal = Ops::greater(magnitude, Ops::set1((1u << f.mantissa_bits) - 1));
  U32 value = Ops::select(is_normal, normal, subnormal);
  if (f.has_infinity())
    value = Ops::select(Ops::equal(magnitude, Ops::set1(f.infinity_code())), Ops::set1(0x7f800000),
                        value);
  const bool fnuz = f.specials == SpecialValues::fnuz;
  const Mask is_nan =
      fnuz ? Ops::equal(Ops::bit_and(code, Ops::set1(0xff)), Ops::set1(f.sign_mask()))
           : Ops::greater(magnitude,
                          Ops::set1(f.has_infinity() ? f.infinity_code() : f.max_finite_code()));
  value = Ops::select(is_nan, Ops::set1(0x7fc00000), value);
  const U32 sign =
      Ops::bit_and(Ops::shift_left(code, Ops::set1(static_cast<std::uint32_t>(32 - f.code_bits()))),
                   Ops::set1(0x80000000));
  value = Ops::bit_or(value, sign);
  return inverse_scale == 1.0f ? value : Ops::multiply(value, inverse_scale);
}

/// Every signed format of at most eight bits, in 32-bit lanes.
void decode_general(const DecodeTask& task) {
  const std::size_t whole = task.count - task.count % Ops::kLanes;
  for (std::size_t i = 0; i < whole; i += Ops::kLanes)
    Ops::store(task.out + i,
               decode_lanes(*task.format, Ops::load_bytes(task.in + i), task.inverse_scale));
  if (whole == task.count) return;
  const std::size_t rest = task.count - whole;
  std::array<std::uint8_t, Ops::kLanes> in{};
  std::array<float, Ops::kLanes> values;
  std::memcpy(in.data(), task.in + whole, rest);
  Ops::store(values.data(),
             decode_lanes(*task.format, Ops::load_bytes(in.data()), task.inverse_scale));
  std::memcpy(task.out + whole, values.data(), rest * sizeof(float));
}

}  // namespace
}  // namespace fp8lab::cast_kernels
