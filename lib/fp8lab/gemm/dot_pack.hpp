#pragma once
// Packing of A for dot kernels. B needs none.

#include <cstdint>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/kernels.hpp"

namespace fp8lab::gemm_detail {

/// Whether FP16 has room for all fields of a format's codes: not for the largest FNUZ numbers.
bool has_half_fields(const Format& f);

/// Codes of rows of A, [rows][row_stride], steps * terms of each.
struct DotSource {
  const unsigned char* codes = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
};

/// The arrays of DotRows.
class PackedDotRows {
 public:
  PackedDotRows() = default;
  /// Packs codes of the format `a`, of 8 bits or less, for these kernels.
  PackedDotRows(const DotSource& from, const Format& a, const DotLayout& b,
                const DotKernels& kernels);
  /// The arrays from step `step` on.
  [[nodiscard]] DotRows from(std::int64_t step) const;

 private:
  void look_up(const DotSource& from, const Format& a, const DotLayout& b, std::int64_t chunk);

  std::int64_t rows_ = 0;
  AlignedArray<float> values_;
  AlignedArray<std::uint8_t> exponents_;
  AlignedArray<std::int8_t> signs_;
  AlignedArray<std::int8_t> zeros_;
};

}  // namespace fp8lab::gemm_detail
