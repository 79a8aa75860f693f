#pragma once
// NaN and infinities among what goes into a product and what comes out: defined bits, but
// seldom what anyone meant. They are counted and told, so that a golden of NaN is no silent one.

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

/// Of storage codes of a format, dense and little endian.
NonFinite count_non_finite(FormatId format, std::span<const std::byte> codes);
NonFinite count_non_finite(std::span<const float> values);
NonFinite count_non_finite(const CodeMatrix& matrix);

/// Counts under the name of what was counted, `A`, `scale_a`, `D` ...
struct NamedNonFinite {
  std::string name;
  NonFinite counts;
};
using NonFiniteReport = std::vector<NamedNonFinite>;

/// What goes into a product: A, B, scale_a, scale_b, C, where they are there; and the floats
/// that a recipe quantized.
NonFiniteReport count_non_finite(const Product& product);

/// `A has 128 NaN; D has 64 NaN and 2 infinite`, or nothing if there are none.
std::string describe(const NonFiniteReport& report);

}  // namespace fp8lab
