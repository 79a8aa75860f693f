#include "fp8lab/accumulate/arithmetic.hpp"

#include <bit>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"

namespace fp8lab {

__extension__ using Wide = unsigned __int128;

void KulischAccumulator::add(bool negative, std::uint64_t significand, int exponent) {
  const int position = exponent - kLowestExponent;
  auto limb = static_cast<std::size_t>(position / 64);
  const Wide shifted = Wide{significand} << (position % 64);
  std::array<std::uint64_t, 2> part{static_cast<std::uint64_t>(shifted),
                                    static_cast<std::uint64_t>(shifted >> 64)};
  std::uint64_t carry = 0;
  for (std::size_t i = 0; limb < limbs_.size() && (i < part.size() || carry != 0); ++i, ++limb) {
    const std::uint64_t term = i < part.size() ? part[i] : 0;
    if (negative) {
      const Wide difference = Wide{limbs_[limb]} - term - carry;
      limbs_[limb] = static_cast<std::uint64_t>(difference);
      carry = static_cast<std::uint64_t>(difference >> 64) & 1;
    } else {
      const Wide sum = Wide{limbs_[limb]} + term + carry;
      limbs_[limb] = static_cast<std::uint64_t>(sum);
      carry = static_cast<std::uint64_t>(sum >> 64);
    }
  }
}

Exact KulischAccumulator::value() const {
  std::array<std::uint64_t, 10> magnitude = limbs_;
  const bool negative = (limbs_.back() >> 63) != 0;
  if (negative) {
    std::uint64_t carry = 1;
    for (std::uint64_t& limb : magnitude) {
      limb = ~limb + carry;
      carry = carry != 0 && limb == 0 ? 1 : 0;
    }
  }
  int top = static_cast<int>(magnitude.size()) - 1;
  while (top >= 0 && magnitude[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return {};
  const auto high = magnitude[static_cast<std::size_t>(top)];
  const auto low = top > 0 ? magnitude[static_cast<std::size_t>(top - 1)] : 0;
  const int free_bits = std::countl_zero(high);
  Exact x;
  x.negative = negative;
  x.significand = free_bits == 0 ? high : (high << free_bits) | (low >> (64 - free_bits));
  x.exponent = kLowestExponent + 64 * top - free_bits;
  x.sticky = free_bits == 0 ? low != 0 : (low << free_bits) != 0;
  for (int i = 0; i + 1 < top; ++i) x.sticky |= magnitude[static_cast<std::size_t>(i)] != 0;
  return x;
}

}  // namespace fp8lab

namespace fp8lab::accumulate_detail {
namespace {

__extension__ using UnsignedWide = unsigned __int128;

constexpr CastPolicy rounding_policy(RoundingMode mode) {
  return {.rounding = mode,
          .overflow = OverflowPolicy::non_saturating,
          .infinity = InfinityPolicy::non_saturating};
}

constexpr Format binary32_like(int fraction_bits) {
  return {FormatId::f32, "rounded sum", 8, fraction_bits, 127, true, SpecialValues::ieee, 32};
}

}  // namespace

Term product(const Unpacked& a, const Unpacked& b) {
  return {std::uint64_t{a.significand} * b.significand, a.exponent + b.exponent,
          a.mantissa_bits + b.mantissa_bits, a.negative != b.negative};
}

Term as_term(const Unpacked& c) { return {c.significand, c.exponent, c.mantissa_bits, c.negative}; }

Unpacked unpack_float(float x) {
  return unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(x));
}

void Specials::note_value(const Unpacked& c) {
  nan |= c.value_class == ValueClass::nan;
  if (c.value_class == ValueClass::infinity) note_infinity(c.negative);
}

void Specials::note_product(const Unpacked& a, const Unpacked& b) {
  if (a.is_finite() && b.is_finite()) return;
  const bool has_nan = a.value_class == ValueClass::nan || b.value_class == ValueClass::nan;
  const bool has_zero = a.value_class == ValueClass::zero || b.value_class == ValueClass::zero;
  if (has_nan || has_zero)
    nan = true;
  else
    note_infinity(a.negative != b.negative);
}

void Specials::note_products(std::span<const Unpacked> a, std::span<const Unpacked> b) {
  for (std::size_t i = 0; i < a.size(); ++i) note_product(a[i], b[i]);
}

float Specials::result() const {
  if (nan || (positive_infinity && negative_infinity)) return std::bit_cast<float>(kCanonicalNan);
  const float infinity = std::numeric_limits<float>::infinity();
  return negative_infinity ? -infinity : infinity;
}

Wide aligned_toward_zero(const Term& t, int unit_exponent) {
  if (t.significand == 0) return 0;
  const int shift = t.exponent - t.fraction_bits - unit_exponent;
  Wide magnitude = 0;
  if (shift >= 0)
    magnitude = static_cast<Wide>(t.significand) << shift;
  else if (shift > -64)
    magnitude = static_cast<Wide>(t.significand >> -shift);
  return t.negative ? -magnitude : magnitude;
}

Wide aligned_down(Wide sum, int exponent, int unit_exponent) {
  const int shift = exponent - unit_exponent;
  if (sum == 0) return 0;
  if (shift >= 0) return sum * (Wide{1} << shift);
  if (shift <= -127) return sum < 0 ? -1 : 0;
  return sum >> -shift;  // C++20: an arithmetic shift, which rounds down
}

bool all_negative_zeros(std::span<const Unpacked> a, std::span<const Unpacked> b, float c) {
  if (c != 0.0F || !std::signbit(c)) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Term p = product(a[i], b[i]);
    if (p.significand != 0 || !p.negative) return false;
  }
  return true;
}

Exact exact_of(Wide sum, int exponent) {
  Exact x;
  x.negative = sum < 0;
  auto magnitude = x.negative ? -static_cast<UnsignedWide>(sum) : static_cast<UnsignedWide>(sum);
  const auto high = static_cast<std::uint64_t>(magnitude >> 64);
  if (high != 0) {
    const int shift = 64 - std::countl_zero(high);
    x.sticky = (magnitude & ((UnsignedWide{1} << shift) - 1)) != 0;
    magnitude >>= shift;
    exponent += shift;
  }
  x.significand = static_cast<std::uint64_t>(magnitude);
  x.exponent = exponent;
  return x;
}

Exact exact_of(const Term& t) {
  return {t.significand, t.exponent - t.fraction_bits, t.negative, false};
}

float round_to_float(const Exact& x, int fraction_bits, RoundingMode mode) {
  if (x.significand == 0) return 0.0F;
  const CastResult r = round_and_pack(binary32_like(fraction_bits), rounding_policy(mode), x);
  return std::bit_cast<float>(r.code << (23 - fraction_bits));
}

float round_to_half(const Exact& x, RoundingMode mode) {
  if (x.significand == 0) return 0.0F;
  const Format& half = format(FormatId::f16);
  return static_cast<float>(decode(half, round_and_pack(half, rounding_policy(mode), x).code));
}

float rounded_to_half(float x) {
  const Format& half = format(FormatId::f16);
  return static_cast<float>(decode(half, encode(half, kNvidiaNosat, x)));
}

Term rounded(const Exact& x, int fraction_bits, RoundingMode mode) {
  if (x.significand == 0) return {};
  const int leading = 63 - std::countl_zero(x.significand) + x.exponent;
  const Format f = binary32_like(fraction_bits);
  // Round in the binade of 1, where no exponent is out of reach.
  const Exact unit{x.significand, x.exponent - leading, x.negative, x.sticky};
  const Unpacked u = unpack(f, round_and_pack(f, rounding_policy(mode), unit).code);
  return {u.significand, u.exponent + leading, fraction_bits, x.negative};
}

void add(KulischAccumulator& sum, const Term& t) {
  if (t.significand != 0) sum.add(t.negative, t.significand, t.exponent - t.fraction_bits);
}

}  // namespace fp8lab::accumulate_detail
