#include "tool/pack_cases.hpp"

#include <fmt/format.h>

#include <bit>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

void pack_codes(const std::vector<std::uint32_t>& codes, FormatId id, NarrowOperands narrow,
                std::uint8_t* row) {
  const int bits = format(id).code_bits();
  const int shift = id == FormatId::e2m1 ? 2 : 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (narrow == NarrowOperands::in_bytes || bits == 8) {
      row[i] = static_cast<std::uint8_t>(codes[i] << shift);
      continue;
    }
    // Groups without a gap: all of the row, or 16 operands at the beginning of 16 bytes.
    const std::size_t group = narrow == NarrowOperands::in_halves ? codes.size() : 16;
    const std::size_t at = i % group * static_cast<std::size_t>(bits);
    std::uint8_t* const to = row + i / group * 16 + at / 8;
    const std::uint32_t word = codes[i] << (at % 8);
    to[0] = static_cast<std::uint8_t>(to[0] | word);
    if (at % 8 + static_cast<std::size_t>(bits) > 8)
      to[1] = static_cast<std::uint8_t>(to[1] | word >> 8);
  }
}

void check(std::size_t got, std::size_t expected, std::string_view what) {
  require(got == expected, "cases", fmt::format("{} {} per case", expected, what),
          fmt::format("{}", got));
}

}  // namespace

TileBatch pack_cases(std::span<const VectorCase> cases, const ProbedInstruction& probe, int steps) {
  if (!probe.scales) return pack_tiles(cases, probe.a_format, probe.b_format, steps);
  require(cases.size() % kTile == 0, "cases", "a multiple of 64", fmt::format("{}", cases.size()));
  TileBatch batch{static_cast<int>(cases.size()) / kTile, steps, {}, {}, {}, {}, {}};
  const auto row_bytes = static_cast<std::size_t>(steps * kStepBytes);
  const auto terms = static_cast<std::size_t>(steps * probe.terms_of_step());
  const std::size_t scales = terms / static_cast<std::size_t>(probe.scales->block);
  batch.a.resize(cases.size() * row_bytes);
  batch.b.resize(cases.size() * row_bytes);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const VectorCase& one = cases[i];
    check(one.a.size(), terms, "terms");
    check(one.b.size(), terms, "terms");
    check(one.scales_a.size(), scales, "scales");
    check(one.scales_b.size(), scales, "scales");
    pack_codes(one.a, probe.a_format, probe.narrow_operands(), batch.a.data() + i * row_bytes);
    pack_codes(one.b, probe.b_format, probe.narrow_operands(), batch.b.data() + i * row_bytes);
    batch.a_scales.insert(batch.a_scales.end(), one.scales_a.begin(), one.scales_a.end());
    batch.b_scales.insert(batch.b_scales.end(), one.scales_b.begin(), one.scales_b.end());
    batch.c.push_back(std::bit_cast<float>(one.c));
  }
  return batch;
}

float result_of(const AccumulatorModel& model, const ProbedInstruction& probe,
                const VectorCase& one) {
  const auto c = std::bit_cast<float>(one.c);
  if (!probe.scales) return dot_product(model, probe.a_format, one.a, probe.b_format, one.b, c);
  const std::vector<std::uint32_t> a(one.scales_a.begin(), one.scales_a.end());
  const std::vector<std::uint32_t> b(one.scales_b.begin(), one.scales_b.end());
  const BlockScales scales{magnitude_format(probe.scales->format).id, probe.scales->block, a, b};
  return dot_product(model, probe.a_format, one.a, probe.b_format, one.b, scales, c);
}

}  // namespace fp8lab::cuda
