#include "fp8lab/io/checksum.hpp"

#include <fmt/format.h>

#include <boost/crc.hpp>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kObjectEnd = "\n}\n";
constexpr std::string_view kMember = ",\n  \"crc32\": \"";
constexpr std::string_view kMemberEnd = "\"\n}\n";
constexpr std::size_t kDigits = 8;

}  // namespace

std::string crc32_text(std::span<const std::string_view> parts) {
  boost::crc_32_type crc;
  for (const std::string_view part : parts) crc.process_bytes(part.data(), part.size());
  return fmt::format("{:08x}", crc.checksum());
}

std::string crc32_text(std::string_view bytes) { return crc32_text(std::span(&bytes, 1)); }

std::string with_own_checksum(std::string json) {
  require(json.ends_with(kObjectEnd), "json", "an object of lines", "another text");
  json.resize(json.size() - kObjectEnd.size());
  const std::string checksum = crc32_text(json);
  return json.append(kMember).append(checksum).append(kMemberEnd);
}

void require_own_checksum(std::string_view json, const std::string& where) {
  constexpr std::size_t kTail = kMember.size() + kDigits + kMemberEnd.size();
  if (json.size() < kTail || !json.ends_with(kMemberEnd)) return;
  const std::string_view before = json.substr(0, json.size() - kTail);
  const std::string_view tail = json.substr(before.size());
  if (!tail.starts_with(kMember)) return;
  const std::string_view expected = tail.substr(kMember.size(), kDigits);
  const std::string got = crc32_text(before);
  require(got == expected, where + ": crc32",
          fmt::format("{} as recorded in the file (the file was changed)", expected), got);
}

}  // namespace fp8lab
