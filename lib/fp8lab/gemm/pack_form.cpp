#include "fp8lab/gemm/pack_form.hpp"

#include <bit>

namespace fp8lab::gemm_detail {

int ceil_log2(std::int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x - 1)));
}

RowSummary widest_row(const Format& f, bool all_numbers) {
  RowSummary s;
  const std::uint32_t largest = all_numbers ? f.magnitude_mask() : f.max_finite_code();
  s.largest = static_cast<int>(largest >> f.mantissa_bits) - f.bias;
  s.lowest = f.min_exponent() - f.mantissa_bits;
  return s;
}

ProductRange::ProductRange(const RowSummary& a, const RowSummary& b, std::int64_t k)
    : top(a.largest + b.largest + 2), low(a.lowest + b.lowest), sum_top(top + ceil_log2(k)) {}

}  // namespace fp8lab::gemm_detail
