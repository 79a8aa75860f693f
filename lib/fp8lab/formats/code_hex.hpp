#pragma once
// Codes as people and files write them.

#include <cstdint>
#include <string>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// All hex digits of a code's storage, without 0x.
std::string code_hex(const Format& format, std::uint32_t code);

}  // namespace fp8lab
