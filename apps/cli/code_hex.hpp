#pragma once
// Codes as people and files of the command line write them.

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::cli {

/// All digits of a code of the format, without 0x.
inline std::string code_hex(FormatId id, std::uint32_t code) {
  return fmt::format("{:0{}x}", code, format(id).storage_bits / 4);
}

}  // namespace fp8lab::cli
