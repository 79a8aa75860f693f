#pragma once
// A second, slower implementation of the accumulation models in rational
// arithmetic, written from the specification and sharing no code with the
// library beyond decoding.

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <span>
#include <vector>

#include "fp8lab/accumulate/model.hpp"

namespace oracle {

using boost::multiprecision::cpp_int;
using boost::multiprecision::cpp_rational;

inline cpp_rational power_of_two(int exponent) {
  const cpp_int power = cpp_int(1) << std::abs(exponent);
  if (exponent >= 0) return cpp_rational(power);
  return cpp_rational(1, power);
}

inline cpp_rational exactly(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return cpp_rational(static_cast<std::int64_t>(std::ldexp(fraction, 53))) *
         power_of_two(exponent - 53);
}

/// The integer part of x, toward zero.
inline cpp_int truncate(const cpp_rational& x) {
  return boost::multiprecision::numerator(x) / boost::multiprecision::denominator(x);
}

/// floor(log2 |x|) for x != 0.
inline int exponent_of(const cpp_rational& x) {
  const cpp_rational magnitude = abs(x);
  int e = static_cast<int>(boost::multiprecision::msb(numerator(magnitude))) -
          static_cast<int>(boost::multiprecision::msb(denominator(magnitude)));
  while (power_of_two(e) > magnitude) --e;
  while (power_of_two(e + 1) <= magnitude) ++e;
  return e;
}

/// x to `fraction_bits`, not below 2^min_ulp_exponent.
inline cpp_rational round_to(const cpp_rational& x, int fraction_bits, fp8lab::RoundingMode mode,
                             int min_ulp_exponent) {
  if (x == 0) return x;
  const int ulp_exponent = std::max(exponent_of(x) - fraction_bits, min_ulp_exponent);
  const cpp_rational scaled = x / power_of_two(ulp_exponent);
  cpp_int units = truncate(scaled);
  const cpp_rational rest = abs(scaled - cpp_rational(units));
  const cpp_rational half(1, 2);
  const bool up = mode == fp8lab::RoundingMode::nearest_even &&
                  (rest > half || (rest == half && units % 2 != 0));
  if (up) units += x > 0 ? 1 : -1;
  return cpp_rational(units) * power_of_two(ulp_exponent);
}

/// The exponent an operand brings: that of its binade, the smallest normal one
/// for subnormals.
inline int operand_exponent(const fp8lab::Format& f, double value) {
  return std::max(std::ilogb(value), f.min_exponent());
}

/// FP16's nearest even to x, or x for binary32 output.
inline cpp_rational entered(const fp8lab::AccumulatorModel& model, const cpp_rational& x) {
  if (model.output_format != fp8lab::FormatId::f16) return x;
  return round_to(x, 10, fp8lab::RoundingMode::nearest_even, -24);
}

/// One step of the fused truncated dot product on finite values.
inline cpp_rational fused_step(const fp8lab::AccumulatorModel& model,
                               const fp8lab::Format& a_format, std::span<const double> a,
                               const fp8lab::Format& b_format, std::span<const double> b,
                               const cpp_rational& c) {
  const bool half = model.output_format == fp8lab::FormatId::f16;
  const bool stored_half = half && model.half_c_exponent == fp8lab::HalfCExponent::stored;
  int largest = -100000;
  if (c != 0) largest = std::max(exponent_of(c), stored_half ? -14 : -126);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != 0 && b[i] != 0)
      largest =
          std::max(largest, operand_exponent(a_format, a[i]) + operand_exponent(b_format, b[i]));
  if (largest == -100000) return 0;
  largest = std::max(largest, model.min_alignment_exponent);
  const cpp_rational unit = power_of_two(largest - model.alignment_fraction_bits);
  cpp_int sum = truncate(c / unit);
  for (std::size_t i = 0; i < a.size(); ++i) sum += truncate(exactly(a[i]) * exactly(b[i]) / unit);
  return round_to(cpp_rational(sum) * unit, half ? 10 : model.output_fraction_bits, model.rounding,
                  half ? -24 : -126 - model.output_fraction_bits);
}

/// c + a . b as a rational, before any overflow.
inline cpp_rational fused(const fp8lab::AccumulatorModel& model, const fp8lab::Format& a_format,
                          std::span<const double> a, const fp8lab::Format& b_format,
                          std::span<const double> b, float c) {
  cpp_rational sum = entered(model, exactly(static_cast<double>(c)));
  const auto terms = static_cast<std::size_t>(model.terms);
  for (std::size_t k = 0; k < a.size(); k += terms) {
    const std::size_t count = std::min(terms, a.size() - k);
    sum = fused_step(model, a_format, a.subspan(k, count), b_format, b.subspan(k, count), sum);
  }
  return sum;
}

/// Ways of getting halves wrong, one at a time.
struct HalvesFault {
  bool swapped = false;      ///< the terms k with k mod 4 >= 2 come first
  bool c_unrounded = false;  ///< c does not become FP16 before it is added
  bool c_truncated = false;  ///< the sum with c is truncated
};

/// c + a . b by FP16 halves: the terms k with k mod 4 < 2, then the others, then c.
inline cpp_rational halves(const fp8lab::AccumulatorModel& model, std::span<const double> a,
                           std::span<const double> b, float c, const HalvesFault& fault = {}) {
  using fp8lab::RoundingMode;
  const fp8lab::Format& f16 = fp8lab::format(fp8lab::FormatId::f16);
  const bool half = model.output_format == fp8lab::FormatId::f16;
  const auto add = [&](const cpp_rational& x, const cpp_rational& y, RoundingMode mode) {
    return round_to(x + y, half ? 10 : 23, mode, half ? -24 : -149);
  };
  cpp_rational result = exactly(static_cast<double>(c));
  if (!fault.c_unrounded) result = entered(model, result);
  const auto terms = static_cast<std::size_t>(model.terms);
  for (std::size_t begin = 0; begin < a.size(); begin += terms) {
    cpp_rational sum = 0;
    for (const bool second : {false, true}) {
      std::vector<double> a_half;
      std::vector<double> b_half;
      for (std::size_t k = 0; k < terms && begin + k < a.size(); ++k) {
        if ((k % 4 >= 2) != (second != fault.swapped)) continue;
        a_half.push_back(a[begin + k]);
        b_half.push_back(b[begin + k]);
      }
      if (second && model.halves_order == fp8lab::HalvesOrder::separate)
        sum = add(sum, fused_step(model, f16, a_half, f16, b_half, 0), RoundingMode::nearest_even);
      else
        sum = fused_step(model, f16, a_half, f16, b_half, sum);
    }
    result = add(result, sum,
                 fault.c_truncated ? RoundingMode::toward_zero : RoundingMode::nearest_even);
  }
  return result;
}

}  // namespace oracle
