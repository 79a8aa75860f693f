// Decoding: by way of FP16 where that is exact, else in 32-bit lanes; and FP16 and BF16 to
// binary32.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/cast/kernels/decode_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/cast/kernels/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_CAST_KERNELS
namespace {

HWY_INLINE U32 to_float(U32 v) {
  return as<std::uint32_t>(hn::ConvertTo(Tag<float>(), as<std::int32_t>(v)));
}
HWY_INLINE U32 decode_lanes(const Format& f, U32 code, float inverse_scale) {
  const auto exponent_bits = static_cast<std::uint32_t>(127 - f.bias) << 23;
  const U32 magnitude = hn::And(code, set_words(f.magnitude_mask()));
  const U32 to_mantissa = set_words(static_cast<std::uint32_t>(23 - f.mantissa_bits));
  const U32 normal = hn::Add(hn::Shl(magnitude, to_mantissa), set_words(exponent_bits));
  const auto smallest = static_cast<std::uint32_t>(f.min_exponent() - f.mantissa_bits + 127) << 23;
  const U32 subnormal = multiply(to_float(magnitude), set_words(smallest));
  const Mask is_normal = greater(magnitude, set_words((1u << f.mantissa_bits) - 1));
  U32 value = hn::IfThenElse(is_normal, normal, subnormal);
  if (f.has_infinity())
    value = hn::IfThenElse(hn::Eq(magnitude, set_words(f.infinity_code())), set_words(0x7f800000),
                           value);
  const bool fnuz = f.specials == SpecialValues::fnuz;
  const Mask is_nan = fnuz ? hn::Eq(hn::And(code, set_words(0xff)), set_words(f.sign_mask()))
                           : greater(magnitude, set_words(f.has_infinity() ? f.infinity_code()
                                                                           : f.max_finite_code()));
  value = hn::IfThenElse(is_nan, set_words(0x7fc00000), value);
  const U32 sign = hn::And(hn::Shl(code, set_words(static_cast<std::uint32_t>(32 - f.code_bits()))),
                           set_words(0x80000000));
  value = hn::Or(value, sign);
  return inverse_scale == 1.0f
             ? value
             : multiply(value, set_words(std::bit_cast<std::uint32_t>(inverse_scale)));
}

/// Every signed format of at most eight bits, in 32-bit lanes; for inverse scales near the top
/// of binary32.
void decode_general(const DecodeTask& task) {
  const hn::Rebind<std::uint8_t, Tag<std::uint32_t>> narrow;
  for (std::size_t at = 0; at < task.count; at += kLanes) {
    const std::size_t count = std::min(kLanes, task.count - at);
    std::array<std::uint8_t, kLanes> codes{};
    std::array<float, kLanes> values;
    std::memcpy(codes.data(), task.in + at, count);
    const U32 code = hn::PromoteTo(Tag<std::uint32_t>(), hn::LoadU(narrow, codes.data()));
    hn::StoreU(as<float>(decode_lanes(*task.format, code, task.inverse_scale)), Tag<float>(),
               values.data());
    std::memcpy(task.out + at, values.data(), count * sizeof(float));
  }
}

/// The plan in registers: its address never leaves the loop, so that no store can change it.
struct HalfConstants {
  U16 magnitude_mask;
  I16 last_number;
  U16 lone_nan;
  I16 field_offset;
  F32 factor;
  int magnitude_shift;
  int sign_shift;

  HWY_INLINE explicit HalfConstants(const HalfPlan& plan)
      : magnitude_mask(set<std::uint16_t>(plan.magnitude_mask)),
        last_number(set<std::int16_t>(plan.last_number)),
        lone_nan(set<std::uint16_t>(plan.lone_nan)),
        field_offset(set<std::int16_t>(plan.field_offset)),
        factor(hn::Set(Tag<float>(), plan.factor)),
        magnitude_shift(plan.magnitude_shift),
        sign_shift(plan.sign_shift) {}
};

/// Half a block of codes to binary32.
template <bool kPlain>
HWY_INLINE void decode_half(const HalfConstants& plan, const std::uint8_t* in, F32& low,
                            F32& high) {
  const Tag<std::uint16_t> d;
  const U16 code = hn::PromoteTo(d, hn::LoadU(hn::Half<Tag<std::uint8_t>>(), in));
  const U16 magnitude = hn::And(code, plan.magnitude_mask);
  auto nan = hn::RebindMask(d, hn::Gt(as<std::int16_t>(magnitude), plan.last_number));
  U16 half = hn::ShiftLeftSame(magnitude, plan.magnitude_shift);
  if constexpr (!kPlain) {
    nan = hn::Or(nan, hn::Eq(code, plan.lone_nan));
    half = as<std::uint16_t>(hn::Max(hn::Sub(as<std::int16_t>(half), plan.field_offset),
                                     as<std::int16_t>(hn::ShiftRight<1>(half))));
  }
  half = hn::IfThenElse(nan, set<std::uint16_t>(kHalfNan), half);
  half = hn::OrAnd(half, hn::ShiftLeftSame(code, plan.sign_shift), set<std::uint16_t>(0x8000));
  const hn::Half<Tag<std::uint16_t>> d_half;
  const hn::Rebind<hwy::float16_t, Tag<float>> d_float16;
  const auto promoted = [&](auto halves) HWY_ATTR {
    return hn::PromoteTo(Tag<float>(), hn::BitCast(d_float16, halves));
  };
  low = hn::Mul(promoted(hn::LowerHalf(d_half, half)), plan.factor);
  high = hn::Mul(promoted(hn::UpperHalf(d_half, half)), plan.factor);
}

template <bool kPlain>
HWY_INLINE void decode_block(const HalfConstants& plan, const std::uint8_t* in, float* out) {
  for (std::size_t half = 0; half < kBlock; half += kBlock / 2) {
    F32 low, high;
    decode_half<kPlain>(plan, in + half, low, high);
    hn::StoreU(low, Tag<float>(), out + half);
    hn::StoreU(high, Tag<float>(), out + half + kLanes);
  }
}

/// Fewer than a block, through a padded copy.
template <bool kPlain>
void decode_part(const HalfPlan& half_plan, const std::uint8_t* in, float* out, std::size_t count) {
  const HalfConstants plan(half_plan);
  std::array<std::uint8_t, kBlock> padded{};
  alignas(64) std::array<float, kBlock> values;
  std::memcpy(padded.data(), in, count);
  decode_block<kPlain>(plan, padded.data(), values.data());
  std::memcpy(out, values.data(), count * sizeof(float));
}

template <bool kPlain>
void decode_halves(const DecodeTask& task, const HalfPlan& half_plan) {
  constexpr std::size_t kAhead = 16384;
  const HalfConstants plan(half_plan);
  const std::uint8_t* in = task.in;
  float* out = task.out;
  std::size_t left = task.count;
  const auto address = std::bit_cast<std::uintptr_t>(out);
  if (task.stream && address % sizeof(float) == 0) {
    const std::size_t head = std::min((0 - address) % 64 / sizeof(float), left);
    decode_part<kPlain>(half_plan, in, out, head);
    in += head;
    out += head;
    left -= head;
    for (; left >= kBlock; left -= kBlock, in += kBlock, out += kBlock) {
      prefetch_far(in + kAhead);
      for (std::size_t half = 0; half < kBlock; half += kBlock / 2) {
        F32 low, high;
        decode_half<kPlain>(plan, in + half, low, high);
        hn::Stream(low, Tag<float>(), out + half);
        hn::Stream(high, Tag<float>(), out + half + kLanes);
      }
    }
    hwy::FlushStream();
  }
  for (; left >= kBlock; left -= kBlock, in += kBlock, out += kBlock)
    decode_block<kPlain>(plan, in, out);
  if (left != 0) decode_part<kPlain>(half_plan, in, out, left);
}

void decode_halves(const DecodeTask& task) {
  const HalfPlan plan = make_half_plan(*task.format, task.inverse_scale);
  plan.plain() ? decode_halves<true>(task, plan) : decode_halves<false>(task, plan);
}

void decode_task(const DecodeTask& task) {
  if (task.format->is_scale_only() || !is_built_in(task.format->id))
    kScalarKernels.decode.decode(task);  // scales are one of 32 elements: a table look-up does
  else if (half_plan_fits(*task.format, task.inverse_scale))
    decode_halves(task);
  else
    decode_general(task);
}

/// One vector.
template <FormatId kInput>
HWY_INLINE void widen_vector(const std::uint16_t* in, float* out) {
  const Tag<float> d;
  const auto halves = hn::LoadU(hn::Rebind<std::uint16_t, Tag<float>>(), in);
  if constexpr (kInput == FormatId::bf16) {
    const U32 words = hn::PromoteTo(Tag<std::uint32_t>(), halves);
    hn::StoreU(as<float>(hn::ShiftLeft<16>(words)), d, out);
  } else {
    const hn::Rebind<hwy::float16_t, Tag<float>> d_float16;
    hn::StoreU(hn::PromoteTo(d, hn::BitCast(d_float16, halves)), d, out);
  }
}

/// A loop of one vector would take half as long again where it lies badly in memory.
template <FormatId kInput>
void widen(const std::uint16_t* in, float* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    widen_vector<kInput>(in + i, out + i);
    widen_vector<kInput>(in + i + kLanes, out + i + kLanes);
    widen_vector<kInput>(in + i + 2 * kLanes, out + i + 2 * kLanes);
    widen_vector<kInput>(in + i + 3 * kLanes, out + i + 3 * kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) widen_vector<kInput>(in + i, out + i);
  if (i != count) kScalarKernels.decode.widen(kInput, in + i, out + i, count - i);
}

void widen(FormatId input, const std::uint16_t* in, float* out, std::size_t count) {
  return input == FormatId::bf16 ? widen<FormatId::bf16>(in, out, count)
                                 : widen<FormatId::f16>(in, out, count);
}

}  // namespace

const DecodeKernels* decode_kernels() {
  static constexpr DecodeKernels kTable{decode_task, widen};
  return &kTable;
}

#else
const DecodeKernels* decode_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::cast_kernels {

FP8LAB_TABLE_OF_TARGET(DecodeKernels, decode_kernels)

}  // namespace fp8lab::cast_kernels
#endif
