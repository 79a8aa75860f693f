#include "fp8lab/gemm/operand_scales.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr std::size_t kCodes = 256;

/// Which codes of 8 bits there are.
using CodesSeen = std::array<bool, kCodes>;

/// That of scales which are 1.
constexpr RowSummary kOnes{.largest = 0, .lowest = 0};

/// What scales of these codes reach, of which `known` has all.
RowSummary range_of(const CodesSeen& seen, const auto& known) {
  RowSummary all;
  for (std::size_t code = 0; code < kCodes; ++code)
    if (seen[code]) all.add(known[code].range);
  return all;
}

std::span<const std::uint32_t> codes_of(const BlockScaleRows& scales, Side side) {
  return side == Side::a ? scales.a() : scales.b();
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

RowSummary scaled_by(RowSummary summary, const RowSummary& scales) {
  summary.nan |= scales.nan;
  summary.largest += scales.largest;
  summary.lowest += scales.lowest;
  return summary;
}

RowSummary range_of_scales(const BlockScaleRows& scales, Side side) {
  if (scales.empty()) return kOnes;
  CodesSeen seen{};
  for (const std::uint32_t code : codes_of(scales, side)) seen[code] = true;
  return range_of(seen, OperandScales::read_scales(scales.format()));
}

OperandScales::ReadScale OperandScales::read_scale(FormatId id, std::uint32_t code) {
  const Unpacked scale = unpack_scale(id, code);
  ReadScale read;
  read.range.nan = !scale.is_finite();
  if (scale.is_finite() && scale.significand == 0) read.exponent = kExponentOfZeroScale;
  if (!scale.is_finite() || scale.significand == 0) return read;
  read.value = std::fabs(decode_table(id)[code]);
  read.exponent = scale.exponent;
  // Below twice the power of two that its exponent says.
  read.range.largest = scale.exponent + (scale.mantissa_bits > 0 ? 1 : 0);
  read.range.lowest = scale.exponent - scale.mantissa_bits;
  return read;
}

std::vector<OperandScales::ReadScale> OperandScales::read_scales(FormatId id) {
  std::vector<ReadScale> read;
  for (std::uint32_t code = 0; code < kCodes; ++code) read.push_back(read_scale(id, code));
  return read;
}

OperandScales::OperandScales(const CodeMatrix& matrix, const BlockScaleRows* scales, Side side,
                             const PackForm& form, std::int64_t rows)
    : matrix_(&matrix), codes_(scales), side_(side), rows_(rows) {
  if (!used()) return;
  group_terms_ = form.scale_terms == 0 ? form.terms : form.scale_terms;
  groups_ = ceil_divide(matrix.k, form.terms) * (form.terms / group_terms_);
  if (!codes_->empty()) known_ = read_scales(codes_->format());
  if (form.any_scales)
    for (ReadScale& scale : known_)
      scale.range = {.nan = scale.range.nan, .largest = 0, .lowest = 0};
  const auto size = static_cast<std::size_t>(groups_ * rows_);
  exponents_.resize(size);
  if (!form.scale_exponents) scales_.resize(size);
  if (form.notes_zeros && (side_ == Side::a || !form.along_k())) nonzero_.resize(size);
  ranges_.resize(static_cast<std::size_t>(rows_));
}

void OperandScales::read(std::int64_t begin, std::int64_t count) {
  if (!used()) return;
  if (count < rows_ || codes_->empty()) {
    std::ranges::fill(scales_, 1.0);
    std::ranges::fill(exponents_, 0);
    std::ranges::fill(ranges_, kOnes);
  }
  if (!codes_->empty()) read_codes(begin, count);
  std::ranges::fill(nonzero_, 0u);
  if (nonzero_.empty()) return;
  for (std::int64_t row = 0; row < count; ++row) note_codes(begin, row);
}

void OperandScales::read_codes(std::int64_t begin, std::int64_t count) {
  const std::span<const std::uint32_t> codes = codes_of(*codes_, side_);
  const std::int64_t blocks = codes_->blocks();
  std::vector<CodesSeen> seen(static_cast<std::size_t>(count));
  for (std::int64_t g = 0; g < groups_; ++g) {
    // Groups behind the last term have no scale.
    const std::int64_t block = std::min(g * group_terms_ / codes_->block(), blocks - 1);
    for (std::int64_t row = 0; row < count; ++row) {
      const std::uint32_t code = codes[static_cast<std::size_t>((begin + row) * blocks + block)];
      const ReadScale& scale = known_[code];
      seen[static_cast<std::size_t>(row)][code] = true;
      exponents_[index(g, row)] = scale.exponent;
      if (!scales_.empty()) scales_[index(g, row)] = scale.value;
    }
  }
  for (std::size_t row = 0; row < seen.size(); ++row) ranges_[row] = range_of(seen[row], known_);
}

void OperandScales::note_codes(std::int64_t begin, std::int64_t row) {
  const auto zero_mask = static_cast<unsigned char>(format(matrix_->format).magnitude_mask());
  std::vector<unsigned char> codes(static_cast<std::size_t>(groups_ * group_terms_));
  gather_codes(*matrix_, begin + row, 0, matrix_->k, groups_ * group_terms_, codes.data());
  for (std::int64_t g = 0; g < groups_; ++g) {
    const unsigned char* group = codes.data() + g * group_terms_;
    std::uint32_t terms = 0;
    for (std::int64_t t = 0; t < group_terms_; t += 8)
      terms |= nonzero_bytes(group + t, zero_mask) << t;
    nonzero_[index(g, row)] = terms;
  }
}

GroupScales OperandScales::from(std::int64_t group) const {
  const std::size_t at = index(group, 0);
  const auto of = [at](const auto& values) { return values.empty() ? nullptr : &values[at]; };
  return {of(scales_), of(exponents_), of(nonzero_), rows_};
}

RowSummary OperandScales::scaled(const RowSummary& summary, std::int64_t row) const {
  return used() ? scaled_by(summary, ranges_[static_cast<std::size_t>(row)]) : summary;
}

}  // namespace fp8lab::gemm_detail
