#pragma once
// Packing of A for dot kernels. B needs none.

#include <array>
#include <cstdint>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/kernels.hpp"

namespace fp8lab::gemm_detail {

/// Arrays of DotRows, filled row by row.
class PackedDotRows {
 public:
  PackedDotRows() = default;
  /// For `rows` rows of codes of the 8-bit or narrower format `a`, in `steps` steps of `terms`;
  /// `chunk` is the kernels'.
  PackedDotRows(const Format& a, const DotLayout& b, std::int64_t chunk, std::int64_t rows,
                std::int64_t steps, std::int64_t terms);
  /// Fills row `row` with its codes, steps * terms of them.
  void fill(std::int64_t row, const unsigned char* codes);
  /// The arrays from step `step` on.
  [[nodiscard]] DotRows from(std::int64_t step) const;

 private:
  std::int64_t rows_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t terms_ = 0;
  std::array<float, 256> code_values_{};  ///< what codes become
  std::array<std::uint8_t, 256> code_exponents_{};
  std::array<std::int8_t, 256> code_signs_{};
  std::array<std::int8_t, 256> code_zeros_{};
  std::array<std::int64_t, kDotTerms> places_{};  ///< of a step's values
  AlignedArray<float> values_;
  AlignedArray<std::uint8_t> exponents_;
  AlignedArray<std::int8_t> signs_;
  AlignedArray<std::int8_t> zeros_;
};

}  // namespace fp8lab::gemm_detail
