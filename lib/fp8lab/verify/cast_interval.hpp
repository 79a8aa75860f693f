#pragma once
// The output codes between two real numbers.

#include <cstdint>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The codes of [low, high], rounded outward to binary32, then cast as the output is.
struct CastInterval {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};
CastInterval cast_interval(const OutputCast& output, double low, double high);

/// Whether the number that a code stands for lies between those of the ends. An end that
/// overflowed to NaN has no order: the code must then be a NaN or beyond the other end.
bool lies_in(const CastInterval& interval, FormatId format, std::uint32_t code);

}  // namespace fp8lab
