#pragma once
// How many parts of a size cover a length.

#include <cstdint>

namespace fp8lab {

/// a / b rounded up, of a >= 0 and b > 0.
constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace fp8lab
