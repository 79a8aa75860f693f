#pragma once
// The fused truncated dot product without tensor cores, for the device and for
// the host's tests: one integer path that takes every case, and one path of
// binary32 FMAs that takes the common ones at the speed of ordinary arithmetic.
//
// The FMA path. A step whose largest exponent is E needs every product cut at
// 2^(E-F). A binary32 accumulator that holds 1.5 * 2^(E+23-F) has exactly this
// unit in the last place, so an FMA that rounds toward zero cuts a positive
// product there and adds it in one instruction. Signs are what is left: one
// accumulator takes |a||b| of all products, a second one the positive products
// only (as a+ b+ and a- b-), and the sum is 2 * positive - all.

#include <cmath>
#include <cstdint>
#include <limits>

#include "host_device.hpp"

namespace fp8lab::cuda {

/// The parts of fp8lab::AccumulatorModel that the device needs.
struct EmulatedModel {
  int terms = 32;
  int alignment_fraction_bits = 13;
  int output_fraction_bits = 13;
  bool nearest_even = false;    ///< else toward zero
  bool half_output = false;     ///< FP16 out, and c rounded to FP16
  int exponent_floor = -1024;   ///< no alignment is below it
  int c_exponent_floor = -126;  ///< what a non-zero c brings at least: -14 for FP16's own exponent
  bool positive_zero = false;   ///< a sum that rounds to zero is +0, else it keeps its sign
};

/// The parts of fp8lab::Format that the device needs.
struct EmulatedFormat {
  int exponent_bits = 4;
  int mantissa_bits = 3;
  int bias = 7;
  bool has_infinity = false;  ///< top exponent is Inf and NaN; else only all ones is NaN
  int storage_bits = 8;
};

/// How ptxas makes FP8 mma.sync where the chip does not have it: the operands become
/// FP16, and each 32 terms two FP16 instructions, on the terms k with k % 4 < 2 and on
/// the others. Their sum starts from zero; c joins it by an ordinary addition.
enum class Halves : int {
  none,      ///< the chip has the instruction
  chained,   ///< the second goes on from the first (nvcc 12.8 and later)
  separate,  ///< both start from zero and are added ordinarily (nvcc 12.4 to 12.6)
};
/// Terms of one mma.sync that is made of halves.
inline constexpr int kHalvesTerms = 32;

struct Operand {
  std::uint32_t significand = 0;
  int exponent = 0;  ///< of the significand's leading place, the smallest normal one for subnormals
  bool negative = false;
  bool infinite = false;
  bool nan = false;
};

FP8LAB_HD inline Operand unpack_operand(const EmulatedFormat& f, std::uint32_t word) {
  // TF32 lives in binary32 and gives up its low bits.
  const std::uint32_t code = f.storage_bits == 32 ? word >> (23 - f.mantissa_bits) : word;
  const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
  const std::uint32_t mask = (1u << magnitude_bits) - 1;
  const std::uint32_t magnitude = code & mask;
  const std::uint32_t hidden = 1u << f.mantissa_bits;
  const std::uint32_t field = magnitude >> f.mantissa_bits;
  Operand x;
  x.negative = ((code >> magnitude_bits) & 1u) != 0;
  x.significand = magnitude & (hidden - 1);
  const bool top = field == (1u << f.exponent_bits) - 1;
  if (f.has_infinity ? top : magnitude == mask) {
    x.infinite = f.has_infinity && x.significand == 0;
    x.nan = !x.infinite;
    return x;
  }
  if (field != 0) x.significand |= hidden;
  x.exponent = static_cast<int>(field == 0 ? 1 : field) - f.bias;
  return x;
}

FP8LAB_HD constexpr EmulatedFormat binary32() { return {8, 23, 127, true, 32}; }
FP8LAB_HD constexpr EmulatedFormat binary16() { return {5, 10, 15, true, 16}; }
inline constexpr int kNoExponent = -100000;
inline constexpr std::uint32_t kNanBits = 0x7fffffffu;

/// The code of magnitude * 2^unit in a format of `mantissa_bits` and `bias`
/// with infinities, rounded toward zero or to nearest even.
FP8LAB_HD inline std::uint32_t round_magnitude(std::uint64_t magnitude, int unit, int mantissa_bits,
                                               int bias, bool nearest_even) {
  if (magnitude == 0) return 0;
  const int min_exponent = 1 - bias;
  const int leading = 63 - leading_zeros(magnitude) + unit;
  const int binade = leading > min_exponent ? leading : min_exponent;
  const int dropped = binade - mantissa_bits - unit;
  std::uint64_t kept = 0;
  if (dropped <= 0) {
    kept = magnitude << -dropped;
  } else if (dropped < 64) {
    kept = magnitude >> dropped;
    const std::uint64_t rest = magnitude & ((std::uint64_t{1} << dropped) - 1);
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    if (nearest_even && (rest > half || (rest == half && (kept & 1) != 0))) ++kept;
  }
  const std::uint32_t infinity = (2u * static_cast<std::uint32_t>(bias) + 1u) << mantissa_bits;
  const std::uint64_t code =
      (static_cast<std::uint64_t>(binade - min_exponent) << mantissa_bits) + kept;
  return code < infinity ? static_cast<std::uint32_t>(code) : infinity;
}

FP8LAB_HD inline float half_to_float(std::uint32_t magnitude) {
  const Operand x = unpack_operand(binary16(), magnitude);
  if (x.infinite) return float_of(0x7f800000u);
  return static_cast<float>(x.significand) *
         float_of(static_cast<std::uint32_t>(x.exponent - 10 + 127) << 23);
}

FP8LAB_HD inline float with_sign(float magnitude, bool negative) {
  return float_of(bits_of(magnitude) | (negative ? 0x80000000u : 0u));
}

/// FP16 code of x, nearest even; NaN becomes the chip's NaN.
FP8LAB_HD inline std::uint32_t half_from_float(float value) {
  const Operand x = unpack_operand(binary32(), bits_of(value));
  if (x.nan) return 0x7fffu;
  const std::uint32_t sign = x.negative ? 0x8000u : 0u;
  if (x.infinite) return sign | 0x7c00u;
  return sign | round_magnitude(x.significand, x.exponent - 23, 10, 15, true);
}

/// The value of an FP16 code. The chip's NaN becomes binary32's, any other NaN
/// keeps its sign and payload, so that it can be told apart.
FP8LAB_HD inline float float_from_half(std::uint32_t code) {
  if (code == 0x7fffu) return float_of(kNanBits);
  if ((code & 0x7fffu) > 0x7c00u)
    return float_of(((code & 0x8000u) << 16) | 0x7f800000u | ((code & 0x3ffu) << 13));
  return with_sign(half_to_float(code & 0x7fffu), (code & 0x8000u) != 0);
}

/// sum * 2^unit in the model's output. A sum of zero is +0.
FP8LAB_HD inline float round_sum(const EmulatedModel& model, std::int64_t sum, int unit) {
  if (sum == 0) return 0.0F;
  const bool negative = sum < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -sum : sum);
  const int bits = model.half_output ? 10 : model.output_fraction_bits;
  const int bias = model.half_output ? 15 : 127;
  const std::uint32_t code = round_magnitude(magnitude, unit, bits, bias, model.nearest_even);
  if (code == 0 && model.positive_zero) return 0.0F;
  return with_sign(model.half_output ? half_to_float(code) : float_of(code << (23 - bits)),
                   negative);
}

/// c as the step sees it.
FP8LAB_HD inline float enter_accumulator(const EmulatedModel& model, float c) {
  return model.half_output ? float_from_half(half_from_float(c)) : c;
}

/// c + sum by an ordinary addition of the model's output format. FP16 goes through
/// binary32, whose 24 bits are enough for the second rounding to be harmless.
FP8LAB_HD inline float add_apart(const EmulatedModel& model, float c, float sum) {
  const float total = c + sum;
  if (model.half_output) return float_from_half(half_from_float(total));
  return total != total ? float_of(kNanBits) : total;
}

/// |a||b| (or c) in units of 2^unit, cut toward zero.
FP8LAB_HD inline std::int64_t cut(std::uint64_t significand, int shift, bool negative) {
  // A zero brings no exponent: its shift may be anything.
  if (significand == 0) return 0;
  std::uint64_t magnitude = 0;
  if (shift >= 0)
    magnitude = significand << shift;
  else if (shift > -64)
    magnitude = significand >> -shift;
  return negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
}

/// One step by integer arithmetic. `load_a(i)` and `load_b(i)` give operand i of
/// `count`; takes any values. Alignments of at most 30 fraction bits.
template <typename LoadA, typename LoadB>
FP8LAB_HD float fused_step_integer(const EmulatedModel& model, int a_mantissa_bits,
                                   int b_mantissa_bits, int count, LoadA load_a, LoadB load_b,
                                   float c_value) {
  const Operand c = unpack_operand(binary32(), bits_of(c_value));
  bool nan = c.nan;
  bool plus = c.infinite && !c.negative;
  bool minus = c.infinite && c.negative;
  int top = kNoExponent;
  if (c.significand != 0 && !c.nan)
    top = c.exponent > model.c_exponent_floor ? c.exponent : model.c_exponent_floor;
  for (int i = 0; i < count; ++i) {
    const Operand a = load_a(i);
    const Operand b = load_b(i);
    const bool negative = a.negative != b.negative;
    if (a.nan || b.nan) {
      nan = true;
    } else if (a.infinite || b.infinite) {
      const bool zero = (!a.infinite && a.significand == 0) || (!b.infinite && b.significand == 0);
      nan |= zero;
      plus |= !zero && !negative;
      minus |= !zero && negative;
    } else if (a.significand != 0 && b.significand != 0) {
      const int exponent = a.exponent + b.exponent;
      top = exponent > top ? exponent : top;
    }
  }
  if (nan || (plus && minus)) return float_of(kNanBits);
  if (plus || minus) return float_of(plus ? 0x7f800000u : 0xff800000u);
  if (top == kNoExponent) return 0.0F;
  if (top < model.exponent_floor) top = model.exponent_floor;

  const int unit = top - model.alignment_fraction_bits;
  std::int64_t sum = cut(c.significand, c.exponent - 23 - unit, c.negative);
  const int product_bits = a_mantissa_bits + b_mantissa_bits;
  for (int i = 0; i < count; ++i) {
    const Operand a = load_a(i);
    const Operand b = load_b(i);
    sum += cut(std::uint64_t{a.significand} * b.significand,
               a.exponent + b.exponent - product_bits - unit, a.negative != b.negative);
  }
  return round_sum(model, sum, unit);
}

/// a * b + c rounded once, toward zero.
FP8LAB_HD inline float fma_toward_zero(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rz(a, b, c);
#else
  // The product of two binary32 numbers is exact in binary64; the sum's error is
  // exact too (Knuth's two-sum), so the rounding can be judged and undone.
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  float rounded = static_cast<float>(sum);
  if (std::isinf(rounded)) return std::copysign(std::numeric_limits<float>::max(), rounded);
  const double excess = static_cast<double>(rounded) - sum;
  if ((rounded > 0.0F && excess > error) || (rounded < 0.0F && excess < error))
    rounded = std::nextafter(rounded, 0.0F);
  return rounded;
#endif
}

/// Whether the FMA path can hold a step of this model: the accumulators' binade
/// must have room for all products, each below 4 * 2^F units, and c.
FP8LAB_HD constexpr bool fma_path_fits(const EmulatedModel& model) {
  return (4 * model.terms + 2) <= (1 << 22) >> model.alignment_fraction_bits;
}

// The FMA path counts exponents as binary32's exponent field does, from 127.

/// Beyond this field the magic number would leave binary32.
FP8LAB_HD constexpr int fma_path_top(const EmulatedModel& model) {
  return 254 - 23 + model.alignment_fraction_bits;
}

/// The field that c brings to the alignment, where at least lowest_field counts: a
/// subnormal has the exponent of the smallest normal, and zero changes nothing.
FP8LAB_HD inline int accumulator_field(const EmulatedModel& model, float c) {
  const int field = static_cast<int>((bits_of(c) >> 23) & 0xffu);
  const int floor = model.c_exponent_floor + 127;
  return c == 0.0F || field > floor ? field : floor;
}
FP8LAB_HD constexpr int lowest_field(const EmulatedModel& model) {
  return model.exponent_floor > -126 ? model.exponent_floor + 127 : 1;
}

/// An operand as the FMA path wants it.
struct SplitOperand {
  float magnitude = 0.0F;
  float positive = 0.0F;  ///< max(x, 0)
  float negative = 0.0F;  ///< max(-x, 0)
};

/// The pair of accumulators of one output during one step.
struct FmaAccumulator {
  float all;
  float positive;

  FmaAccumulator() = default;

  /// `top`: the largest field of the step, c's included.
  FP8LAB_HD FmaAccumulator(const EmulatedModel& model, int top, float c)
      : all(fma_toward_zero(fabsf(c), 1.0F, magic(model, top))),
        positive(fma_toward_zero(fmaxf(c, 0.0F), 1.0F, magic(model, top))) {}

  FP8LAB_HD void add(const SplitOperand& a, const SplitOperand& b) {
    all = fma_toward_zero(a.magnitude, b.magnitude, all);
    positive = fma_toward_zero(a.positive, b.positive, positive);
    positive = fma_toward_zero(a.negative, b.negative, positive);
  }

  /// The step's exact aligned sum, at most 23 bits wide. Every operation is exact.
  FP8LAB_HD float sum() const {
    // Both accumulators are still in the binade that they began in, 1.5 of which
    // they began with.
    const float base = float_of((bits_of(all) & 0xff800000u) | 0x400000u);
    return fma_toward_zero(2.0F, positive - base, base - all);
  }

  FP8LAB_HD static float magic(const EmulatedModel& model, int top) {
    const int field = top + 23 - model.alignment_fraction_bits;
    return float_of((static_cast<std::uint32_t>(field) << 23) + 0x400000u);
  }
};

/// The aligned sum in the model's output format.
FP8LAB_HD inline float round_aligned_sum(const EmulatedModel& model, float sum) {
  if (!model.half_output && !model.nearest_even)
    return float_of(bits_of(sum) & ~((1u << (23 - model.output_fraction_bits)) - 1u));
  const Operand x = unpack_operand(binary32(), bits_of(sum));
  const auto magnitude = static_cast<std::int64_t>(x.significand);
  return round_sum(model, x.negative ? -magnitude : magnitude, x.exponent - 23);
}

}  // namespace fp8lab::cuda
