#include "fp8lab/accumulate/kulisch.hpp"

#include <bit>

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
