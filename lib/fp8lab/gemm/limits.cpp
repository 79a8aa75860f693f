// Which outputs a plan's kernel computes, and which are the reference's.

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/gemm/plan.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr int kDoubleBits = 53;
constexpr int kMostExactBits = 100;  // of sums in two words that follow the data

int ceil_log2(std::int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x - 1)));
}

}  // namespace

RowSummary widest_row(const Format& f) {
  RowSummary s;
  s.largest = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  s.lowest = f.min_exponent() - f.mantissa_bits;
  return s;
}

TwoWords find_two_words(const Plan& plan, const Format& a, const Format& b, std::int64_t k) {
  const RowSummary in_a = widest_row(a);
  const RowSummary in_b = widest_row(b);
  const int low = in_a.lowest + in_b.lowest;
  const int f = plan.rounding.alignment_fraction_bits;
  const bool steps = plan.method == Method::exact_steps;
  if (!steps && plan.method != Method::exact) return {};
  if (steps && in_a.largest + in_b.largest - f > low) return {};
  // The second word holds `terms` rests below 2^unit, the first their whole parts.
  const int carries = ceil_log2((steps ? plan.terms : k) + 1);
  const int unit = low + 52 - carries;
  const int room = unit + 50;
  if (in_a.largest + in_b.largest + 2 + carries > room || low <= -120 || room >= 120) return {};
  return {.magic = std::ldexp(1.5, 52 + unit),
          .limit = std::ldexp(1.0, steps ? std::min(room, low + f + 1) : room),
          .lowest = std::ldexp(1.0, low)};
}

bool kernel_takes(const Plan& plan, const RowSummary& a, const RowSummary& b, std::int64_t k) {
  if (plan.words.used()) return true;
  const int top = a.largest + b.largest + 2;  // products are below 2^top
  const int low = a.lowest + b.lowest;        // and multiples of 2^low
  const int sum_top = top + ceil_log2(k);
  switch (plan.method) {
    case Method::fused_double:
      return sum_top < 126;
    case Method::exact:
      return sum_top - low <= kDoubleBits && sum_top < 126 && low > -149;
    case Method::exact_steps:
      return top + ceil_log2(plan.terms) - low <= kDoubleBits && sum_top < 120 && low > -120 &&
             sum_top + 1 - plan.rounding.alignment_fraction_bits <= low;
    case Method::checked_steps:
      return sum_top < 120 && low > -120 && sum_top - low <= kMostExactBits;
    case Method::float32:
      return top < 127 && low >= -149;
    case Method::scaled_groups:
      return sum_top < 126;
    case Method::fused_words:
    case Method::two_stage:
    case Method::even_odd:
      // All sums are multiples of 2^(-60 - 31), which the least alignment keeps.
      return low >= -60 && sum_top < 80 && a.largest <= 60 && b.largest <= 60;
    default:
      return true;
  }
}

bool kernel_takes_start(const Plan& plan, float c, const RowSummary& a, const RowSummary& b) {
  if (plan.takes_everything()) return true;
  if (c == 0.0F) return !(plan.keeps_negative_zero && std::signbit(c));
  if (plan.words.used())
    return std::fabs(c) < plan.words.limit && std::fmod(c, plan.words.lowest) == 0.0;
  // 128 for NaN and Inf, -127 for subnormals: outside of what each method asks of them.
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(c) >> 23 & 255) - 127;
  switch (plan.method) {
    case Method::fused_float:
      // The magic number of the largest and of the smallest alignment must exist.
      return exponent < 117 && exponent + 23 - plan.rounding.alignment_fraction_bits < 128 &&
             exponent >= -45;
    case Method::exact_steps: {
      // Neither may c truncate a product nor a product c.
      const int f = plan.rounding.alignment_fraction_bits;
      return exponent + 2 - f <= a.lowest + b.lowest &&
             exponent - 23 >= a.largest + b.largest - f && exponent > -100 && exponent < 120;
    }
    case Method::checked_steps: {
      // K's length is not known here: 24 bits of it are enough for any.
      const int top = std::max(a.largest + b.largest + 2 + 24, exponent + 2);
      const int low = std::min(a.lowest + b.lowest, exponent - 23);
      return exponent < 120 && low > -120 && top - low <= kMostExactBits;
    }
    case Method::truncated_float:
      return exponent - 23 >= -126 && exponent < 120;
    case Method::nearest_double:
      // c may have more bits than a sum: its first sum must be exact if products are the smaller.
      return exponent < 128 && exponent + 2 - (a.lowest + b.lowest) <= kDoubleBits;
    case Method::fused_words:
    case Method::two_stage:
    case Method::even_odd:
      return exponent >= -60 && exponent < 120;
    case Method::truncated_double:
    case Method::nearest_of_odd:
      return exponent < 128;
    default:
      return exponent < 120;
  }
}

}  // namespace fp8lab::gemm_detail
