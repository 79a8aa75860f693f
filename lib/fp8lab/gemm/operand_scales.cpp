#include "fp8lab/gemm/operand_scales.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {

OperandScales::OperandScales(const GemmProblem& p, const BlockScaleRows& scales, Side side,
                             std::int64_t group_terms, bool nonzero)
    : used_(ceil_divide(p.a.k, group_terms)),
      stride_((side == Side::a ? p.a : p.b).rows + kMaxWidth),
      groups_(ceil_divide(p.a.k, p.model.terms) * (p.model.terms / group_terms)),
      scales_(static_cast<std::size_t>(groups_ * stride_), 1.0),
      exponents_(scales_.size(), 0),
      nonzero_(nonzero ? scales_.size() : 0, 0) {
  const CodeMatrix& matrix = side == Side::a ? p.a : p.b;
  const bool of_a = side == Side::a;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    RowSummary range;
    const BlockScales all = scales.at(of_a ? row : 0, of_a ? 0 : row, 0, p.a.k);
    for (std::int64_t g = 0; g < used_; ++g) {
      const Unpacked scale =
          scale_at(all, of_a ? all.a : all.b, static_cast<std::size_t>(g * group_terms));
      if (!scale.is_finite()) range.nan = true;
      if (!scale.is_finite() || scale.significand == 0) {
        scales_[index(g, row)] = 0.0;
        continue;
      }
      scales_[index(g, row)] = std::ldexp(scale.significand, scale.exponent - scale.mantissa_bits);
      exponents_[index(g, row)] = scale.exponent;
      // Below twice the power of two that its exponent says.
      range.add({.largest = scale.exponent + (scale.mantissa_bits > 0 ? 1 : 0),
                 .lowest = scale.exponent - scale.mantissa_bits});
    }
    ranges_.push_back(range);
  }
  if (nonzero) note_codes(matrix, group_terms);
}

void OperandScales::note_codes(const CodeMatrix& matrix, std::int64_t group_terms) {
  const auto zero_mask = static_cast<unsigned char>(format(matrix.format).magnitude_mask());
  std::vector<unsigned char> codes(static_cast<std::size_t>(groups_ * group_terms));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    gather_codes(matrix, row, 0, matrix.k, groups_ * group_terms, codes.data());
    for (std::int64_t g = 0; g < groups_; ++g) {
      if (scales_[index(g, row)] == 0.0) continue;
      const unsigned char* group = codes.data() + g * group_terms;
      std::uint32_t terms = 0;
      for (std::int64_t t = 0; t < group_terms; ++t)
        terms |= std::uint32_t{(group[t] & zero_mask) != 0} << t;
      nonzero_[index(g, row)] = terms;
    }
  }
}

GroupScales OperandScales::from(std::int64_t group, std::int64_t row) const {
  const std::size_t at = index(group, row);
  return {scales_.data() + at, exponents_.data() + at, nonzero_.data() + at, stride_};
}

RowSummary OperandScales::scaled(RowSummary summary, std::int64_t row) const {
  const RowSummary& range = ranges_[static_cast<std::size_t>(row)];
  summary.nan |= range.nan;
  summary.largest += range.largest;
  summary.lowest += range.lowest;
  return summary;
}

}  // namespace fp8lab::gemm_detail
