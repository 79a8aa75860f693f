#pragma once
// Exact sums along k, for few rows: B is neither packed nor transposed. docs/lab/gemm.md, "Few
// rows".

#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/methods/method.hpp"

namespace fp8lab::gemm_detail {

/// Up to how many rows sums along k are faster than panels: of one sum for many steps, and of one a
/// step, whose lanes are added up each time.
inline constexpr std::int64_t kMostLineRows = 8;
inline constexpr std::int64_t kMostLineRowsOfSteps = 4;

/// Whether a product has so few rows, and steps of as many terms as the kernels take.
bool sums_along_k(const GemmProblem& problem, std::int64_t terms, std::int64_t most_rows);

/// The exact sums of the products of a tile's steps.
class ExactLines {
 public:
  /// One sum a step, or one of all steps together.
  ExactLines(const TileSteps<double>& steps, bool together);

  /// The sums of a row as the products of steps of one term.
  [[nodiscard]] StepBlock<double> block(const TileSteps<double>& steps, std::int64_t row) const;

 private:
  std::int64_t width_;
  std::int64_t sums_;  ///< a row and column
  AlignedArray<double> ones_;
  AlignedArray<double> values_;  ///< [rows][sums][width]
};

}  // namespace fp8lab::gemm_detail
