#pragma once
// The checksum that files of this project carry: CRC-32 as zlib, ZIP and
// Python's `zlib.crc32` compute it. It finds every change of up to three bits.

#include <span>
#include <string>
#include <string_view>

namespace fp8lab {

/// Eight lower-case hex digits.
std::string crc32_text(std::string_view bytes);

/// Of all parts as if they were one.
std::string crc32_text(std::span<const std::string_view> parts);

}  // namespace fp8lab
