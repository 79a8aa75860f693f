#pragma once
// What rows of operands hold, as far as it decides which outputs a kernel computes.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::gemm_detail {

/// What a row of an operand holds, over all of K.
struct RowSummary {
  bool nan = false;
  bool infinite = false;
  int largest = std::numeric_limits<int>::min() / 4;  ///< largest exponent of a non-zero element
  int lowest = std::numeric_limits<int>::max() / 4;   ///< exponent of its lowest set bit

  void add(const RowSummary& other) {
    nan |= other.nan;
    infinite |= other.infinite;
    largest = std::max(largest, other.largest);
    lowest = std::min(lowest, other.lowest);
  }
};

/// What a row holds that has all finite codes.
RowSummary widest_row(const Format& format);

/// The products of a row like `a` with a row like `b`, and sums of k of them.
struct ProductRange {
  ProductRange(const RowSummary& a, const RowSummary& b, std::int64_t k);

  int top;      ///< products are below 2^top
  int low;      ///< and multiples of 2^low
  int sum_top;  ///< sums are below 2^sum_top
};

/// How many bits numbers below x have; x > 0.
int ceil_log2(std::int64_t x);

}  // namespace fp8lab::gemm_detail
