#pragma once
// The parts of the scalar steps of matrix units: exact terms, the rule for special values, and
// the rounding of exact sums. For the files of `units/`.

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Adds values and products of binary32's range exactly and rounds once.
///
/// Range: bits 2^-300 .. 2^340 in two's complement, which holds 2^80 products
/// of the largest BF16 numbers and the smallest products of TF32 subnormals.
class KulischAccumulator {
 public:
  /// Adds (-1)^negative * significand * 2^exponent; significand < 2^62,
  /// -300 <= exponent <= 257.
  void add(bool negative, std::uint64_t significand, int exponent);

  /// The exact sum as a 64-bit significand with sticky bit.
  [[nodiscard]] Exact value() const;

 private:
  static constexpr int kLowestExponent = -300;
  std::array<std::uint64_t, 10> limbs_{};  // little endian, two's complement
};

}  // namespace fp8lab

namespace fp8lab::accumulate_detail {

__extension__ using Wide = __int128;

/// The exponent of a zero, which takes no part in an alignment.
inline constexpr int kNoExponent = std::numeric_limits<int>::min();

/// A finite product or accumulator: (-1)^negative * significand * 2^(exponent - fraction_bits).
struct Term {
  std::uint64_t significand = 0;
  int exponent = 0;
  int fraction_bits = 0;
  bool negative = false;

  /// Its exponent in an alignment: the stored exponent; kNoExponent for zero.
  [[nodiscard]] int alignment_exponent() const { return significand == 0 ? kNoExponent : exponent; }
};

Term product(const Unpacked& a, const Unpacked& b);
Term as_term(const Unpacked& c);
Unpacked unpack_float(float x);

/// The result that special values among the operands decide before any arithmetic.
struct Specials {
  bool nan = false;
  bool positive_infinity = false;
  bool negative_infinity = false;

  void note_infinity(bool negative) { (negative ? negative_infinity : positive_infinity) = true; }
  void note_value(const Unpacked& c);
  void note_product(const Unpacked& a, const Unpacked& b);
  void note_products(std::span<const Unpacked> a, std::span<const Unpacked> b);
  [[nodiscard]] bool any() const { return nan || positive_infinity || negative_infinity; }
  /// NaN if there is a NaN or infinities of both signs, else the infinity.
  [[nodiscard]] float result() const;
};

/// `t` in units of 2^unit_exponent, the rest dropped toward zero. The value is below 2^100 units.
Wide aligned_toward_zero(const Term& t, int unit_exponent);

/// `sum` of units of 2^exponent in units of 2^unit_exponent, the rest dropped toward -Inf. The
/// value is below 2^100 units.
Wide aligned_down(Wide sum, int exponent, int unit_exponent);

/// Whether c and all products, which are finite, are -0. Then their sum is -0 by IEEE 754's rules,
/// which AMD's units follow. Ask for special values first.
bool all_negative_zeros(std::span<const Unpacked> a, std::span<const Unpacked> b, float c);

/// An integer times a power of two as a 64-bit significand with sticky bit.
Exact exact_of(Wide sum, int exponent);
Exact exact_of(const Term& t);

/// Rounds to `fraction_bits` with binary32's exponents; a sum that is too large becomes an
/// infinity. A sum of exactly zero is +0, whatever the signs of its terms.
float round_to_float(const Exact& x, int fraction_bits, RoundingMode mode);
/// The same for FP16; the result is returned as binary32.
float round_to_half(const Exact& x, RoundingMode mode);
/// x rounded to FP16, to nearest even, as binary32.
float rounded_to_half(float x);
/// Rounds to `fraction_bits` with an unbounded exponent.
Term rounded(const Exact& x, int fraction_bits, RoundingMode mode);

void add(KulischAccumulator& sum, const Term& t);

}  // namespace fp8lab::accumulate_detail
