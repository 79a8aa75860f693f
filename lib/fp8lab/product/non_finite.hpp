#pragma once
// Counts of NaN and infinities in the operands and results of a product. Their bits are defined,
// but they are seldom intended, so reports name them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

struct NonFinite {
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;

  [[nodiscard]] bool any() const { return nan + infinite > 0; }
  NonFinite& operator+=(const NonFinite& other) {
    nan += other.nan;
    infinite += other.infinite;
    return *this;
  }
  friend bool operator==(const NonFinite&, const NonFinite&) = default;
};

/// Counts storage codes of a format, dense and little endian.
NonFinite count_non_finite(FormatId format, std::span<const std::byte> codes);
NonFinite count_non_finite(std::span<const float> values);
NonFinite count_non_finite(const CodeMatrix& matrix);

/// Counts by the name of the tensor: `A`, `scale_a`, `D` ...
struct NamedNonFinite {
  std::string name;
  NonFinite counts;
};
using NonFiniteReport = std::vector<NamedNonFinite>;

/// Counts of the operands of a product, A, B, scale_a, scale_b and C if present, and of the floats
/// that a recipe quantized.
NonFiniteReport count_non_finite(const Product& product);

/// `A has 128 NaN; D has 64 NaN and 2 infinite`, or nothing if there are none.
std::string describe(const NonFiniteReport& report);

}  // namespace fp8lab
