#include "fp8lab/product/non_finite.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace fp8lab {
namespace {

void add_class(const Format& f, std::uint32_t code, std::uint64_t times, NonFinite& counts) {
  const ValueClass kind = unpack(f, code).value_class;
  if (kind == ValueClass::nan) counts.nan += times;
  if (kind == ValueClass::infinity) counts.infinite += times;
}

NonFinite count_bytes(const Format& f, std::span<const std::byte> codes) {
  std::array<std::uint64_t, 256> times{};
  for (const std::byte code : codes) ++times[static_cast<std::size_t>(code)];
  NonFinite counts;
  for (std::uint32_t code = 0; code < times.size(); ++code)
    if (times[code] > 0) add_class(f, code, times[code], counts);
  return counts;
}

/// Words whose exponent field is all ones are no finite numbers in IEEE formats.
template <typename Word>
NonFinite count_words(Word exponent, Word mantissa, std::span<const std::byte> codes) {
  NonFinite counts;
  for (std::size_t at = 0; at < codes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, &codes[at], sizeof(Word));
    if ((word & exponent) != exponent) continue;
    ((word & mantissa) != 0 ? counts.nan : counts.infinite) += 1;
  }
  return counts;
}

}  // namespace

NonFinite count_non_finite(FormatId id, std::span<const std::byte> codes) {
  switch (id) {
    case FormatId::f16:
      return count_words<std::uint16_t>(0x7c00, 0x03ff, codes);
    case FormatId::bf16:
      return count_words<std::uint16_t>(0x7f80, 0x007f, codes);
    case FormatId::f32:
      return count_words<std::uint32_t>(0x7f800000u, 0x007fffffu, codes);
    case FormatId::tf32:  // held in binary32, whose low bits it ignores
      return count_words<std::uint32_t>(0x7f800000u, 0x007fe000u, codes);
    default:
      return count_bytes(format(id), codes);
  }
}

NonFinite count_non_finite(std::span<const float> values) {
  return count_non_finite(FormatId::f32, std::as_bytes(values));
}

NonFinite count_non_finite(const CodeMatrix& m) {
  const std::int64_t width = format(m.format).bytes();
  const auto* data = static_cast<const std::byte*>(m.data);
  const bool columns = m.k_stride != 1 && m.row_stride == 1;  // which are dense then
  const std::int64_t lines = columns ? m.k : m.rows;
  const std::int64_t length = columns ? m.rows : m.k;
  const std::int64_t step = columns ? m.k_stride : m.row_stride;
  const bool dense = columns || m.k_stride == 1;
  NonFinite counts;
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::byte* begin = data + line * step * width;
    if (dense) {
      counts += count_non_finite(m.format, {begin, static_cast<std::size_t>(length * width)});
      continue;
    }
    for (std::int64_t k = 0; k < length; ++k)
      counts += count_non_finite(m.format,
                                 {begin + k * m.k_stride * width, static_cast<std::size_t>(width)});
  }
  return counts;
}

NonFiniteReport count_non_finite(const Product& product) {
  const GemmProblem& p = product.problem;
  NonFiniteReport report;
  if (product.a_original)
    report.push_back({"A before quantization", count_non_finite(*product.a_original)});
  if (product.b_original)
    report.push_back({"B before quantization", count_non_finite(*product.b_original)});
  report.push_back({"A", count_non_finite(p.a)});
  report.push_back({"B", count_non_finite(p.b)});
  if (!p.scale_a.empty()) report.push_back({"scale_a", count_non_finite(p.scale_a.values)});
  if (!p.scale_b.empty()) report.push_back({"scale_b", count_non_finite(p.scale_b.values)});
  if (p.c != nullptr)
    report.push_back({"C", count_non_finite(std::span(p.c, product.sum_count()))});
  return report;
}

std::string describe(const NonFiniteReport& report) {
  std::string text;
  for (const auto& [name, counts] : report) {
    if (!counts.any()) continue;
    text += fmt::format("{}{} has ", text.empty() ? "" : "; ", name);
    if (counts.nan > 0) text += fmt::format("{} NaN", counts.nan);
    if (counts.infinite > 0)
      text += fmt::format("{}{} infinite", counts.nan > 0 ? " and " : "", counts.infinite);
  }
  return text;
}

}  // namespace fp8lab
