#include "fp8lab/gemm/operand_scales.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// A scale as kernels and their limits read it.
struct ReadScale {
  double value = 0.0;  ///< 0 for a NaN, too
  int exponent = 0;
  RowSummary range;
};

ReadScale read_scale(const Unpacked& scale) {
  ReadScale read;
  read.range.nan = !scale.is_finite();
  if (!scale.is_finite() || scale.significand == 0) return read;
  read.value = std::ldexp(scale.significand, scale.exponent - scale.mantissa_bits);
  read.exponent = scale.exponent;
  // Below twice the power of two that its exponent says.
  read.range.largest = scale.exponent + (scale.mantissa_bits > 0 ? 1 : 0);
  read.range.lowest = scale.exponent - scale.mantissa_bits;
  return read;
}

/// The scales of all codes of 8 bits; of one code, 1, where there are no scales.
std::vector<ReadScale> read_scales(const BlockScales& scales) {
  if (scales.empty()) return {read_scale(scale_at(scales, scales.a, 0))};
  std::vector<ReadScale> read;
  for (std::uint32_t code = 0; code < 256; ++code)
    read.push_back(read_scale(unpack_scale(scales.format, code)));
  return read;
}

/// Bit i: whether byte i of eight, under the mask, is not zero.
std::uint32_t nonzero_bytes(const unsigned char* bytes, unsigned char mask) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  word &= mask * 0x0101010101010101u;
  // The top bit of each byte: of its own, or carried into it from the seven below.
  constexpr std::uint64_t kSeven = 0x7f7f7f7f7f7f7f7f;
  const std::uint64_t found = (((word & kSeven) + kSeven) | word) & ~kSeven;
  return static_cast<std::uint32_t>((found >> 7) * 0x0102040810204080u >> 56);
}

}  // namespace

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
  const std::vector<ReadScale> known = read_scales(scales.at(0, 0, 0, p.a.k));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    RowSummary range;
    const BlockScales all = scales.at(of_a ? row : 0, of_a ? 0 : row, 0, p.a.k);
    const std::span<const std::uint32_t> codes = of_a ? all.a : all.b;
    for (std::int64_t g = 0; g < used_; ++g) {
      const std::int64_t block = g * group_terms / all.block;
      const ReadScale& scale = known[codes.empty() ? 0 : codes[static_cast<std::size_t>(block)]];
      scales_[index(g, row)] = scale.value;
      exponents_[index(g, row)] = scale.exponent;
      range.add(scale.range);
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
      for (std::int64_t t = 0; t < group_terms; t += 8)
        terms |= nonzero_bytes(group + t, zero_mask) << t;
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
