#pragma once
// The codes of the scales that a block-scaled instruction applies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/accumulate/scales.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// The scales of rows over all of K, one code for each block; empty if all are 1.
class BlockScaleRows {
 public:
  BlockScaleRows() = default;
  /// Reads them from a validated problem; empty unless its instruction applies the scales.
  explicit BlockScaleRows(const GemmProblem& problem);

  [[nodiscard]] bool empty() const { return block_ == 0; }
  [[nodiscard]] FormatId format() const { return format_; }
  [[nodiscard]] std::int64_t block() const { return block_; }    ///< terms that share a scale
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }  ///< of a row
  /// All codes, [rows][blocks].
  [[nodiscard]] std::span<const std::uint32_t> a() const { return a_; }
  [[nodiscard]] std::span<const std::uint32_t> b() const { return b_; }
  /// The scales of row `row` of A and row `column` of B for `count` terms from term `begin` on,
  /// which must be a multiple of the block.
  [[nodiscard]] BlockScales at(std::int64_t row, std::int64_t column, std::int64_t begin,
                               std::int64_t count) const;

 private:
  std::int64_t block_ = 0;
  std::int64_t blocks_ = 0;
  FormatId format_ = FormatId::e8m0fnu;
  std::vector<std::uint32_t> a_;
  std::vector<std::uint32_t> b_;
};

namespace gemm_detail {

/// The problem without the scales that its instruction applies. Promotion, C and the scales after
/// the instruction are validated against it. Tensor scales other than 1 remain, as one scale for
/// each matrix, which points into `problem`.
GemmProblem without_unit_scales(const GemmProblem& problem);

/// `validate`; returns the scales that the instruction applies, which were read for it.
BlockScaleRows validated_scales(const GemmProblem& problem, std::size_t output_size);

}  // namespace gemm_detail
}  // namespace fp8lab
