#pragma once
// The checksum in files of this project: CRC-32, as in zlib, ZIP and Python's
// `zlib.crc32`. It detects every change of up to three bits.

#include <span>
#include <string>
#include <string_view>

namespace fp8lab {

/// The checksum as eight lower-case hex digits.
std::string crc32_text(std::string_view bytes);

/// The checksum of the concatenation of all parts.
std::string crc32_text(std::span<const std::string_view> parts);

/// `json`, an object whose text ends with "\n}\n", with a new last member `"crc32": "01234567"`:
/// the checksum of all text before the comma in front of this member. `require_own_checksum` checks
/// it.
std::string with_own_checksum(std::string json);

/// Throws `Error` that names `where` if `json` ends with a checksum of `with_own_checksum` that
/// does not match its text. A text without a checksum (from an older version or another program)
/// passes.
void require_own_checksum(std::string_view json, const std::string& where);

}  // namespace fp8lab
