#include "fp8lab/gemm/word_dots.hpp"

#include <cmath>
#include <cstring>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr int kHalfBias = 15;

template <typename Lane>
void put(unsigned char* to, std::int64_t at, int value) {
  const auto lane = static_cast<Lane>(value);
  std::memcpy(to + at * static_cast<std::int64_t>(sizeof lane), &lane, sizeof lane);
}

template <typename Code>
CodeRange range_of(const unsigned char* ranges) {
  CodeRange range;
  for (std::size_t i = 0; i < kWordDotBytes / sizeof(Code); ++i) {
    Code largest = 0;
    Code below = 0;
    std::memcpy(&largest, ranges + i * sizeof(Code), sizeof(Code));
    std::memcpy(&below, ranges + kWordDotBytes + i * sizeof(Code), sizeof(Code));
    if (largest != 0) range.add({largest, std::uint32_t{below} + 1});
  }
  return range;
}

}  // namespace

WordDotLayout word_dot_layout(const Format& b, std::int64_t terms) {
  WordDotLayout layout{.codes = code_layout(b)};
  // FP16 has no room for numbers in the field of its infinities.
  const bool in_half = b.exponent_bits < 5 || b.specials != SpecialValues::fnuz;
  if (b.storage_bits == 8 && b.has_sign && b.exponent_bits <= 5 && in_half)
    layout.kind = LineCodes::bytes;
  else if (b.id == FormatId::f16)
    layout.kind = LineCodes::halves;
  else if (b.id == FormatId::bf16)
    layout.kind = LineCodes::upper_halves;
  else if (b.id == FormatId::tf32)
    layout.kind = LineCodes::words;
  else
    return {};
  const int most = kWordDotBytes / layout.code_bytes();
  layout.terms = terms <= most / 2 ? most / 2 : most;
  return terms <= most ? layout : WordDotLayout{};
}

PackedWordDotRows::PackedWordDotRows(const StepBlock<float>& from, const WordDotLayout& layout,
                                     int byte_chunk)
    : rows_(from.rows),
      terms_(layout.terms),
      code_bytes_(layout.code_bytes()),
      values_(from.rows * from.steps * terms_),
      exponents_(from.rows * from.steps * terms_ * code_bytes_) {
  const bool bytes = layout.kind == LineCodes::bytes;
  const float scale = bytes ? std::ldexp(1.0F, kHalfBias - layout.codes.bias) : 1.0F;
  const std::int64_t chunk = bytes ? std::min<std::int64_t>(byte_chunk, terms_) : 1;
  const auto put_exponent = code_bytes_ == 1   ? put<std::int8_t>
                            : code_bytes_ == 2 ? put<std::int16_t>
                                               : put<std::int32_t>;
  for (std::int64_t line = 0; line < from.rows * from.steps; ++line)
    for (std::int64_t t = 0; t < terms_; ++t) {
      const bool inside = t < from.terms;
      const std::int64_t at = line * from.terms + t;
      const std::int64_t i = t % chunk;
      const std::int64_t place = bytes ? t - i + i % 2 * (chunk / 2) + i / 2 : t;
      values_.data()[line * terms_ + place] = inside ? from.a[at] * scale : 0.0F;
      const int exponent =
          inside ? static_cast<std::int8_t>(from.a_exponents[at] & 0xffu) : kWordExponentOfZero;
      put_exponent(exponents_.data(), line * terms_ + t, exponent);
    }
}

WordDotRows PackedWordDotRows::from(std::int64_t step) const {
  const std::int64_t at = step * rows_ * terms_;
  return {values_.data() + at, exponents_.data() + at * code_bytes_};
}

void clear_lane_ranges(unsigned char* ranges, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; ++j, ranges += 2 * kWordDotBytes) {
    std::memset(ranges, 0, kWordDotBytes);
    std::memset(ranges + kWordDotBytes, 0xff, kWordDotBytes);
  }
}

CodeRange range_of_lanes(const unsigned char* ranges, int code_bytes) {
  return code_bytes == 1   ? range_of<std::uint8_t>(ranges)
         : code_bytes == 2 ? range_of<std::uint16_t>(ranges)
                           : range_of<std::uint32_t>(ranges);
}

}  // namespace fp8lab::gemm_detail
