#pragma once
// Scales that a matrix unit itself applies: one for each block of terms of an operand.

#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Codes of the scales of one row of A and one column of B: ceil(k / block) each, block 0 first. If
/// both are empty, all scales are 1. Scale direction: value = code * scale.
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

/// An unpacked scale. The sign bit of UE4M3 is ignored.
inline Unpacked unpack_scale(FormatId id, std::uint32_t code) {
  Unpacked scale = unpack(format(id), code);
  scale.negative = false;
  return scale;
}

/// The scale of the block of term `k`; 1 if there are no scales.
inline Unpacked scale_at(const BlockScales& scales, std::span<const std::uint32_t> side,
                         std::size_t k) {
  if (scales.empty()) return {.significand = 1, .value_class = ValueClass::normal};
  return unpack_scale(scales.format, side[k / static_cast<std::size_t>(scales.block)]);
}

}  // namespace fp8lab
