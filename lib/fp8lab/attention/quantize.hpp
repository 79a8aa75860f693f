#pragma once
// Heads of floats as E4M3 codes with one scale a head.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// Codes that own their memory.
struct QuantizedHeads {
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> inverse_scales;  ///< [heads]
  FormatId format = FormatId::e4m3fn;

  [[nodiscard]] AttentionOperand operand() const {
    return {format, codes, heads, rows, columns, inverse_scales};
  }
};

/// Quantizes row-major [heads, rows, columns] to E4M3, each head by its own amax
/// (TransformerEngine's current scaling). Throws `Error` if sizes differ.
QuantizedHeads quantize_heads(std::span<const float> values, std::int64_t heads, std::int64_t rows,
                              std::int64_t columns);

}  // namespace fp8lab
