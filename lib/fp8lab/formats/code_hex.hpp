#pragma once
// Codes as text.

#include <cstdint>
#include <string>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The code in hexadecimal, with all digits of its storage width and without 0x.
std::string code_hex(const Format& format, std::uint32_t code);

}  // namespace fp8lab
