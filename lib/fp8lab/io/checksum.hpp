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

/// `json`, an object of lines that end with "\n}\n", with a last member `"crc32": "01234567"`: the
/// checksum of all text before the comma that this member comes after. `require_own_checksum` reads
/// it.
std::string with_own_checksum(std::string json);

/// Throws `Error` naming `where` if `json` ends with a checksum of `with_own_checksum` that is not
/// that of its text. A text without one (of an older version, or written by another program)
/// passes.
void require_own_checksum(std::string_view json, const std::string& where);

}  // namespace fp8lab
