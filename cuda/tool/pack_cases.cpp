#include "tool/pack_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

void pack_codes(const std::vector<std::uint32_t>& codes, FormatId id, NarrowOperands narrow,
                std::uint8_t* row) {
  const int bits = format(id).code_bits();
  if (narrow == NarrowOperands::in_bytes || bits == 8) {
    const int shift = id == FormatId::e2m1 ? 2 : 0;
    for (std::size_t i = 0; i < codes.size(); ++i)
      row[i] = static_cast<std::uint8_t>(codes[i] << shift);
    return;
  }
  if (narrow == NarrowOperands::in_halves) {
    for (std::size_t i = 0; i < codes.size() / 2; ++i)
      row[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    return;
  }
  // 16 operands without a gap at the beginning of 16 bytes: eight fill four or six whole bytes.
  for (std::size_t first = 0; first < codes.size(); first += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8; ++i)
      word |= std::uint64_t{codes[first + i]} << (i * static_cast<std::size_t>(bits));
    const auto bytes = static_cast<std::size_t>(bits);
    std::memcpy(row + first / 16 * 16 + first % 16 / 8 * bytes, &word, bytes);
  }
}

void check(std::size_t got, std::size_t expected, std::string_view what) {
  if (got == expected) return;
  throw Error("cases", fmt::format("{} {} per case", expected, what), std::to_string(got));
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
  batch.scale_a.resize(cases.size() * scales);
  batch.scale_b.resize(cases.size() * scales);
  batch.c.resize(cases.size());
  for (const VectorCase& one : cases) {
    check(one.a.size(), terms, "terms");
    check(one.b.size(), terms, "terms");
    check(one.scales_a.size(), scales, "scales");
    check(one.scales_b.size(), scales, "scales");
  }
  const NarrowOperands narrow = probe.narrow_operands();
#pragma omp parallel for schedule(static) if (cases.size() >= 4096)
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const VectorCase& one = cases[i];
    pack_codes(one.a, probe.a_format, narrow, batch.a.data() + i * row_bytes);
    pack_codes(one.b, probe.b_format, narrow, batch.b.data() + i * row_bytes);
    std::ranges::copy(one.scales_a, batch.scale_a.data() + i * scales);
    std::ranges::copy(one.scales_b, batch.scale_b.data() + i * scales);
    batch.c[i] = std::bit_cast<float>(one.c);
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
