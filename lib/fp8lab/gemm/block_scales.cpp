#include "fp8lab/gemm/block_scales.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

/// How the instruction reads the scales of a problem: those of one operand alone, or those of both,
/// which must be alike.
struct Coding {
  std::int64_t block = 0;
  FormatId format = FormatId::e8m0fnu;
  friend bool operator==(const Coding&, const Coding&) = default;
};

constexpr std::int64_t kE8m0Block = 32;

/// Wider tiles of E8M0 codes give each block of 32 terms in them the same scale, as DeepGEMM's
/// 1x128 tiles do.
Coding coding_of(const InverseScales& scales) {
  const bool wide = scales.format == FormatId::e8m0fnu && scales.k_block > kE8m0Block &&
                    scales.k_block % kE8m0Block == 0;
  if (wide) return {kE8m0Block, scales.format};
  if (scales.format != FormatId::f32) return {scales.k_block, scales.format};
  return {scales.k_block, scales.k_block == 16 ? FormatId::e4m3fn : FormatId::e8m0fnu};
}

std::optional<Coding> unit_coding(const GemmProblem& p) {
  if (!traits_of(p.model).takes_scales) return std::nullopt;
  std::optional<Coding> found;
  for (const InverseScales* scales : {&p.scale_a, &p.scale_b}) {
    if (scales->empty()) continue;
    if (scales->after_instruction) return std::nullopt;
    const Coding coding = coding_of(*scales);
    const bool fits =
        (coding.block == 16 || coding.block == 32) &&
        unit_of(p.model.kind).takes_scales(p.model, coding.format, static_cast<int>(coding.block));
    if (!fits || (found && *found != coding)) return std::nullopt;
    found = coding;
  }
  return found;
}

/// The codes of a scale format by value. Values of scale formats have at most three fraction bits,
/// so the upper bits of binary32 tell them apart.
class ScaleCodes {
 public:
  explicit ScaleCodes(FormatId id) : nan_(static_cast<Entry>(format(id).magnitude_mask())) {
    codes_.fill(kNone);
    const std::span<const float> values = decode_table(id);
    for (Entry code = 0; code < nan_; ++code)
      codes_[std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(code)]) >> kLowerBits] =
          code;
  }
  /// The code whose value is `scale`; nothing if there is none.
  [[nodiscard]] std::optional<std::uint32_t> of(float scale) const {
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    const Entry code = codes_[bits >> kLowerBits];
    const bool exact = (bits & ((1U << kLowerBits) - 1)) == 0;
    if (exact && code != kNone) return static_cast<std::uint32_t>(code);
    if (std::isnan(scale)) return static_cast<std::uint32_t>(nan_);
    return std::nullopt;
  }

 private:
  using Entry = std::int16_t;
  static constexpr Entry kNone = -1;
  static constexpr int kLowerBits = 20;
  Entry nan_;
  std::array<Entry, 1U << (32 - kLowerBits)> codes_;
};

std::vector<std::uint32_t> codes_of(const InverseScales& scales, const CodeMatrix& m,
                                    const Coding& coding, std::string_view name) {
  const ScaleCodes known(coding.format);
  const std::int64_t blocks = ceil_divide(m.k, coding.block);
  if (scales.empty())
    return std::vector(static_cast<std::size_t>(m.rows * blocks), known.of(1.0F).value());
  std::vector<std::uint32_t> codes;
  codes.reserve(static_cast<std::size_t>(m.rows * blocks));
  const std::int64_t repeats = scales.k_block / coding.block;
  const std::int64_t tiles = ceil_divide(m.k, scales.k_block);
  for (std::int64_t row = 0; row < m.rows; ++row) {
    const auto begin = static_cast<std::size_t>(row / scales.row_block * tiles);
    for (const float scale : scales.values.subspan(begin, static_cast<std::size_t>(tiles))) {
      const std::optional<std::uint32_t> code = known.of(scale);
      const std::int64_t block = std::ssize(codes) - row * blocks;
      if (!code)
        throw Error(
            name,
            fmt::format("values of {}, the scale format of the instruction",
                        coding.format == FormatId::e4m3fn ? "UE4M3" : format(coding.format).name),
            fmt::format("{} (row {}, term {})", scale, row, block * coding.block));
      codes.insert(codes.end(), static_cast<std::size_t>(std::min(repeats, blocks - block)), *code);
    }
  }
  return codes;
}

}  // namespace

bool applies_scales(const GemmProblem& problem) { return unit_coding(problem).has_value(); }

BlockScaleRows::BlockScaleRows(const GemmProblem& p) {
  const std::optional<Coding> coding = unit_coding(p);
  if (!coding) return;
  block_ = coding->block;
  blocks_ = ceil_divide(p.a.k, block_);
  format_ = coding->format;
  a_ = codes_of(p.scale_a, p.a, *coding, "scale_a");
  b_ = codes_of(p.scale_b, p.b, *coding, "scale_b");
}

BlockScales BlockScaleRows::at(std::int64_t row, std::int64_t column, std::int64_t begin,
                               std::int64_t count) const {
  if (empty()) return {};
  const auto part = [&](const std::vector<std::uint32_t>& codes, std::int64_t line) {
    return std::span(codes).subspan(static_cast<std::size_t>(line * blocks_ + begin / block_),
                                    static_cast<std::size_t>((count + block_ - 1) / block_));
  };
  return {format_, static_cast<int>(block_), part(a_, row), part(b_, column)};
}

namespace gemm_detail {

namespace {

/// The second level of scales as one scale of the whole matrix.
InverseScales whole_scale(const InverseScales& scales, const CodeMatrix& m) {
  return {{&scales.tensor_scale, 1}, std::max<std::int64_t>(m.rows, 1), 0};
}

}  // namespace

GemmProblem without_unit_scales(const GemmProblem& problem) {
  GemmProblem rest = problem;
  if (!applies_scales(problem)) return rest;
  rest.scale_a = rest.scale_b = {};
  if (problem.scale_a.tensor_scale != 1.0F || problem.scale_b.tensor_scale != 1.0F) {
    rest.scale_a = whole_scale(problem.scale_a, problem.a);
    rest.scale_b = whole_scale(problem.scale_b, problem.b);
  }
  return rest;
}

}  // namespace gemm_detail
}  // namespace fp8lab
