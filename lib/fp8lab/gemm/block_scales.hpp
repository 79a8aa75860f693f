#pragma once
// Scales that a block-scaled instruction applies itself, as the codes that it reads.

#include <cstdint>
#include <vector>

#include "fp8lab/accumulate/scales.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// The scales of one row over all of K, one a block: their values, 1 where there are none.
class BlockScaleRows {
 public:
  BlockScaleRows() = default;
  /// Of a validated problem; empty unless its instruction applies the scales.
  explicit BlockScaleRows(const GemmProblem& problem);

  [[nodiscard]] bool empty() const { return block_ == 0; }
  /// Those of row `row` of A and row `column` of B from term `begin` on, a multiple of the block,
  /// for `count` terms.
  [[nodiscard]] BlockScales at(std::int64_t row, std::int64_t column, std::int64_t begin,
                               std::int64_t count) const;

 private:
  std::int64_t block_ = 0;
  std::int64_t blocks_ = 0;  ///< in K
  FormatId format_ = FormatId::e8m0fnu;
  std::vector<std::uint32_t> a_;
  std::vector<std::uint32_t> b_;
};

namespace gemm_detail {

/// The problem without the scales that its instruction applies: what promotion, C and the scales
/// after the instruction are judged by. Tensor scales other than 1 stay, as one scale of each
/// matrix, which points into `problem`.
GemmProblem without_unit_scales(const GemmProblem& problem);

/// Throws `Error` unless every scale that the instruction applies is one of its format.
void validate_unit_scales(const GemmProblem& problem);

}  // namespace gemm_detail
}  // namespace fp8lab
