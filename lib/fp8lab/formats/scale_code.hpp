#pragma once
// Codes of block scales, as block-scaled instructions read them: UE8M0 and UE4M3 of the PTX
// manual (`mma.block_scale`), 8 bits each.

#include <array>
#include <cstdint>
#include <string_view>

#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class ScaleFormat : std::uint8_t {
  ue8m0,  ///< E8M0: 2^(code - 127), 0xff is NaN, no zero
  ue4m3,  ///< E4M3 whose sign bit is ignored: 0x7f and 0xff are NaN, 0x00 and 0x80 zero
};

inline constexpr std::array<std::string_view, 2> kScaleFormatNames{"ue8m0", "ue4m3"};

constexpr std::string_view to_string(ScaleFormat scale) {
  return kScaleFormatNames[static_cast<std::size_t>(scale)];
}
/// The format called `name`. Throws `Error` that names `argument`.
inline ScaleFormat find_scale_format(std::string_view name,
                                     std::string_view argument = "scale_format") {
  return find_enumerator<ScaleFormat>(kScaleFormatNames, argument, name);
}

/// The storage format of the scales; for UE4M3 its sign bit has no meaning.
constexpr const Format& magnitude_format(ScaleFormat scale) {
  return format(scale == ScaleFormat::ue8m0 ? FormatId::e8m0fnu : FormatId::e4m3fn);
}

/// An unpacked scale. It is never negative; subnormals of UE4M3 have exponent -6.
constexpr Unpacked unpack_scale(ScaleFormat scale, std::uint8_t code) {
  const Format& f = magnitude_format(scale);
  return unpack(f, code & f.magnitude_mask());
}

}  // namespace fp8lab
