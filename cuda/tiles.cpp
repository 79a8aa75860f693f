#include "tiles.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

/// Little endian, as the device; a loop of its own for each width, which compilers vectorize.
template <typename Word>
void pack_words(std::span<const std::uint32_t> codes, int shift, std::uint8_t* row) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto word = static_cast<Word>(codes[i] << shift);
    std::memcpy(row + i * sizeof(Word), &word, sizeof(Word));
  }
}

void pack_row(std::span<const std::uint32_t> codes, const Format& f, std::uint8_t* row) {
  switch (f.storage_bits) {
    case 8:
      return pack_words<std::uint8_t>(codes, 0, row);
    case 16:
      return pack_words<std::uint16_t>(codes, 0, row);
    default:
      return pack_words<std::uint32_t>(codes, 23 - f.mantissa_bits, row);
  }
}

}  // namespace

TileBatch pack_tiles(std::span<const VectorCase> cases, FormatId a, FormatId b, int steps) {
  require(cases.size() % kTile == 0, "cases", "a multiple of 64", fmt::format("{}", cases.size()));
  TileBatch batch{static_cast<int>(cases.size()) / kTile, steps, {}, {}, {}, {}, {}};
  const auto row_bytes = static_cast<std::size_t>(steps * kStepBytes);
  const auto terms_of = [&](FormatId id) {
    return row_bytes * 8 / static_cast<std::size_t>(format(id).storage_bits);
  };
  for (const VectorCase& one : cases)
    if (one.a.size() != terms_of(a) || one.b.size() != terms_of(b))
      throw Error("cases", fmt::format("{} terms in {} steps", terms_of(a), steps),
                  std::to_string(one.a.size()));
  batch.a.resize(cases.size() * row_bytes);
  batch.b.resize(cases.size() * row_bytes);
  batch.c.resize(cases.size());
#pragma omp parallel for schedule(static) if (cases.size() >= 4096)
  for (std::size_t i = 0; i < cases.size(); ++i) {
    pack_row(cases[i].a, format(a), batch.a.data() + i * row_bytes);
    pack_row(cases[i].b, format(b), batch.b.data() + i * row_bytes);
    batch.c[i] = std::bit_cast<float>(cases[i].c);
  }
  return batch;
}

VectorCase case_of_output(std::span<const VectorCase> cases, std::size_t output) {
  const std::size_t first = output / kTileOutputs * kTile;
  const auto within = static_cast<int>(output % kTileOutputs);
  const int row = within / kTile;
  const int column = within % kTile;
  VectorCase one;
  one.a = cases[first + static_cast<std::size_t>(row)].a;
  one.b = cases[first + static_cast<std::size_t>(column)].b;
  one.scales_a = cases[first + static_cast<std::size_t>(row)].scales_a;
  one.scales_b = cases[first + static_cast<std::size_t>(column)].scales_b;
  one.c = cases[first + static_cast<std::size_t>(case_of_c(row, column))].c;
  return one;
}

}  // namespace fp8lab::cuda
