#include "fp8lab/io/checksum.hpp"

#include <fmt/format.h>

#include <boost/crc.hpp>

namespace fp8lab {

std::string crc32_text(std::span<const std::string_view> parts) {
  boost::crc_32_type crc;
  for (const std::string_view part : parts) crc.process_bytes(part.data(), part.size());
  return fmt::format("{:08x}", crc.checksum());
}

std::string crc32_text(std::string_view bytes) { return crc32_text(std::span(&bytes, 1)); }

}  // namespace fp8lab
