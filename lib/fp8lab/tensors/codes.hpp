#pragma once
// Reading of outputs that are arrays of storage codes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The code of element `index` of an output in format `id` (1, 2 or 4 bytes, little endian).
inline std::uint32_t code_at(FormatId id, std::span<const std::byte> codes, std::size_t index) {
  const auto width = static_cast<std::size_t>(format(id).bytes());
  std::uint32_t code = 0;
  std::memcpy(&code, codes.data() + index * width, width);
  return code;
}

/// All values as binary32, which represents them exactly.
inline std::vector<float> decode_codes(FormatId id, std::span<const std::byte> codes) {
  const auto width = static_cast<std::size_t>(format(id).bytes());
  std::vector<float> values(codes.size() / width);
  if (id == FormatId::f32) {
    if (!values.empty()) std::memcpy(values.data(), codes.data(), codes.size());
    return values;
  }
  const std::span<const float> table = decode_table(id);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = table[code_at(id, codes, i)];
  return values;
}

}  // namespace fp8lab
