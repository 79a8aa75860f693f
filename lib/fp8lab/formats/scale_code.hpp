#pragma once
// Codes of block scales, as instructions with block scales read them: UE8M0 and UE4M3 of the PTX
// manual (`mma.block_scale`), 8 bits each.

#include <array>
#include <cstdint>
#include <string_view>

#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class ScaleFormat : std::uint8_t {
  ue8m0,  ///< E8M0: 2^(code - 127), 0xff is NaN, no zero
  ue4m3,  ///< E4M3 whose sign bit says nothing: 0x7f and 0xff are NaN, 0x00 and 0x80 zero
};

inline constexpr std::array<std::string_view, 2> kScaleFormatNames{"ue8m0", "ue4m3"};

constexpr std::string_view to_string(ScaleFormat scale) {
  return kScaleFormatNames[static_cast<std::size_t>(scale)];
}
/// Throws `Error` for `argument`.
inline ScaleFormat find_scale_format(std::string_view name,
                                     std::string_view argument = "scale_format") {
  return find_enumerator<ScaleFormat>(kScaleFormatNames, argument, name);
}

/// The format that has the magnitudes of the scales.
constexpr const Format& magnitude_format(ScaleFormat scale) {
  return format(scale == ScaleFormat::ue8m0 ? FormatId::e8m0fnu : FormatId::e4m3fn);
}

/// A scale taken apart: never negative, UE4M3's subnormals with exponent -6.
constexpr Unpacked unpack_scale(ScaleFormat scale, std::uint8_t code) {
  const Format& f = magnitude_format(scale);
  return unpack(f, code & f.magnitude_mask());
}

}  // namespace fp8lab
