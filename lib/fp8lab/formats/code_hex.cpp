#include "fp8lab/formats/code_hex.hpp"

#include <fmt/format.h>

namespace fp8lab {

std::string code_hex(const Format& format, std::uint32_t code) {
  return fmt::format("{:0{}x}", code, format.storage_bits / 4);
}

}  // namespace fp8lab
