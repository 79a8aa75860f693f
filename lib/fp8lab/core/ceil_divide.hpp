#pragma once
// How many parts of a size cover a length, and how long these are.

#include <cstdint>

namespace fp8lab {

/// a / b rounded up, of a >= 0 and b > 0.
constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The least multiple of `unit` that is not below `length`.
constexpr std::int64_t round_up(std::int64_t length, std::int64_t unit) {
  return ceil_divide(length, unit) * unit;
}

}  // namespace fp8lab
