#pragma once
// An exact accumulator (Kulisch): a fixed-point number that is wide enough for any
// sum of products of the library's formats and binary32 values.

#include <array>
#include <cstdint>

#include "fp8lab/cast/cast.hpp"

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
