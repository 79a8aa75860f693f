#pragma once
// The scales that a block-scaled instruction applies, as its kernels read them.

#include <cstdint>
#include <vector>

#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/row_summary.hpp"
#include "fp8lab/gemm/unit_kernels.hpp"

namespace fp8lab::gemm_detail {

/// The scales of one operand for groups of some terms, of which each has one: [group][stride],
/// rows last. Beyond the rows, which a panel may read, and without scales they are 1.
class OperandScales {
 public:
  enum class Side : std::uint8_t { a, b };
  /// Of a validated problem with the scales that its instruction applies. `nonzero`: also which
  /// terms of each group, of at most 32, are not zero. There are groups for whole steps.
  OperandScales(const GemmProblem& problem, const BlockScaleRows& scales, Side side,
                std::int64_t group_terms, bool nonzero);

  [[nodiscard]] double scale(std::int64_t group, std::int64_t row) const {
    return scales_[index(group, row)];
  }
  [[nodiscard]] int exponent(std::int64_t group, std::int64_t row) const {
    return exponents_[index(group, row)];
  }
  /// From this group and row on.
  [[nodiscard]] GroupScales from(std::int64_t group, std::int64_t row) const;
  /// What a row of codes holds, with its scales.
  [[nodiscard]] RowSummary scaled(RowSummary summary, std::int64_t row) const;

 private:
  [[nodiscard]] std::size_t index(std::int64_t group, std::int64_t row) const {
    return static_cast<std::size_t>(group * stride_ + row);
  }
  void note_codes(const CodeMatrix& matrix, std::int64_t group_terms);

  std::int64_t used_;  ///< groups that K has
  std::int64_t stride_;
  std::int64_t groups_;
  std::vector<double> scales_;
  std::vector<std::int32_t> exponents_;
  std::vector<std::uint32_t> nonzero_;
  std::vector<RowSummary> ranges_;  ///< of each row's scales
};

}  // namespace fp8lab::gemm_detail
