#pragma once
// Scales that a matrix unit itself applies, one for every block of terms of an operand.

#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Codes of the scales of one row of A and one column of B, block 0 first: ceil(k / block) each,
/// or none, which means 1 everywhere. Scale direction: value = code * scale.
///
/// `format`: e8m0fnu (UE8M0, 2^(code - 127), 0xff is NaN), or e4m3fn read as UE4M3, whose sign
/// bit is ignored (0x7f and 0xff are NaN).
struct BlockScales {
  FormatId format = FormatId::e8m0fnu;
  int block = 32;
  std::span<const std::uint32_t> a;
  std::span<const std::uint32_t> b;

  [[nodiscard]] bool empty() const { return a.empty() && b.empty(); }
};

/// A scale taken apart; UE4M3's sign is dropped.
inline Unpacked unpack_scale(FormatId id, std::uint32_t code) {
  Unpacked scale = unpack(format(id), code);
  scale.negative = false;
  return scale;
}

/// The scale of the block that holds term `k`, or 1.
inline Unpacked scale_at(const BlockScales& scales, std::span<const std::uint32_t> side,
                         std::size_t k) {
  if (scales.empty()) return {.significand = 1, .value_class = ValueClass::normal};
  return unpack_scale(scales.format, side[k / static_cast<std::size_t>(scales.block)]);
}

}  // namespace fp8lab
