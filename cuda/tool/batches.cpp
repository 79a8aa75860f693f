#include "tool/batches.hpp"

#include <algorithm>
#include <array>

#include "fp8lab/core/random.hpp"
#include "fp8lab/vectors/cases.hpp"

namespace fp8lab::cuda {
namespace {

/// A positive normal number 2^exponent, or the nearest one of the format.
std::uint32_t power_of_two(const Format& f, int exponent) {
  const int low = f.min_exponent();
  const int high = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  const int kept = std::clamp(exponent, low, high);
  return static_cast<std::uint32_t>(kept + f.bias) << f.mantissa_bits;
}

VectorCase empty_case(std::size_t terms) {
  VectorCase one;
  one.a.assign(terms, 0);
  one.b.assign(terms, 0);
  return one;
}

int tiles_of_codes(FormatId id) { return std::max(1, (1 << format(id).code_bits()) / kTile); }

/// Tiles whose rows hold every pair of codes, where both are of at most 8 bits.
int pair_tiles(const ProbedInstruction& probe) {
  return tiles_of_codes(probe.a_format) * tiles_of_codes(probe.b_format);
}

/// Rows i of A and j of B hold codes in term `at`; together the tiles have every pair.
VectorCase code_pair(const ProbedInstruction& probe, std::size_t terms, std::size_t at, int tile,
                     int i) {
  VectorCase one = empty_case(terms);
  const int columns = tiles_of_codes(probe.b_format);
  const auto code = [i](FormatId id, int number) {
    return static_cast<std::uint32_t>((number * kTile + i) % (1 << format(id).code_bits()));
  };
  one.a[at] = code(probe.a_format, tile / columns);
  one.b[at] = code(probe.b_format, tile % columns);
  return one;
}

/// Gives an aimed case of an instruction with block scales its scales: 1, or powers of two that
/// leave the products where they are; with `low`, UE8M0 scales that bring the products to the
/// bottom of binary32.
void add_scales(const ProbedInstruction& probe, bool low, const RandomStream& random,
                std::uint64_t at, VectorCase& one) {
  if (!probe.scales) return;
  const std::size_t count = one.a.size() / static_cast<std::size_t>(probe.scales->block);
  const bool exponents = probe.scales->format == ScaleFormat::ue8m0;
  const int unit = exponents ? 127 : 0x38;
  const int step = exponents ? 1 : 8;  // codes of a factor of two
  std::uint64_t draw = at * (2 * count + 2);
  const auto below = [&](std::uint64_t bound) {
    return static_cast<int>(random.below(draw++, bound));
  };
  const int bottom = low && exponents ? 100 + below(56) : 0;
  const bool moved = below(2) == 1;
  for (std::size_t i = 0; i < count; ++i) {
    const int shift = moved ? below(9) - 4 : 0;
    one.scales_a.push_back(static_cast<std::uint8_t>(unit + step * shift - bottom / 2));
    one.scales_b.push_back(static_cast<std::uint8_t>(unit - step * shift - (bottom - bottom / 2)));
  }
}

/// c subnormal, zero or the smallest normal, and products from the bottom of the formats up.
VectorCase bottom(const ProbedInstruction& probe, std::size_t terms, const RandomStream& random,
                  std::uint64_t at) {
  const Format& a = format(probe.a_format);
  const Format& b = format(probe.b_format);
  VectorCase one = empty_case(terms);
  std::uint64_t draw = at * (4 * terms + 8);
  const auto next = [&] { return random.bits32(draw++); };
  const std::uint32_t sign = next() % 2 << 31;
  one.c = sign | (next() % 4 == 0 ? 0x00800000u : next() >> (9 + next() % 23));
  const std::uint32_t live = 1 + next() % 4;
  for (std::uint32_t n = 0; n < live; ++n) {
    const std::size_t i = next() % terms;
    const std::uint32_t subnormals = 1u << a.mantissa_bits;
    const std::uint32_t magnitude = next() % subnormals;
    one.a[i] = magnitude | (next() % 2 == 0 ? 0 : a.sign_mask());
    one.b[i] = next() % 2 == 0 ? next() % (1u << b.mantissa_bits)
                               : power_of_two(b, b.min_exponent() + static_cast<int>(next() % 6));
  }
  return one;
}

/// At the end of each chained instruction the sum stands at the middle between two outputs of some
/// width, or one aligned place beside it: rounding and what is passed on decide.
VectorCase chained_ties(const ProbedInstruction& probe, std::size_t terms,
                        const RandomStream& random, std::uint64_t at) {
  const Format& a = format(probe.a_format);
  const Format& b = format(probe.b_format);
  const auto step = static_cast<std::size_t>(probe.terms());
  VectorCase one = empty_case(terms);
  std::uint64_t draw = at * (4 * terms + 8);
  const auto next = [&] { return random.bits32(draw++); };
  constexpr std::array<int, 5> kWidths{10, 13, 14, 22, 23};
  const int width = kWidths[next() % kWidths.size()];
  const int lowest = std::max(a.min_exponent() + b.min_exponent(), -40);
  const int top = lowest + width + 3 + static_cast<int>(next() % 3);
  const auto set = [&](std::size_t i, bool negative, int exponent) {
    const int half = exponent >= 0 ? (exponent + 1) / 2 : exponent / 2;
    one.a[i] = power_of_two(a, half) | (negative ? a.sign_mask() : 0);
    one.b[i] = power_of_two(b, exponent - half);
  };
  for (std::size_t first = 0; first < terms; first += step) {
    if (first == 0) set(0, next() % 2 == 0, top);
    // Each draw in a statement of its own: the order of arguments is the compiler's.
    const auto set_later = [&](int exponent) {
      const bool negative = next() % 2 == 0;
      set(first + 1 + next() % (step - 1), negative, exponent);
    };
    set_later(top - width - 1);
    if (next() % 2 == 0)
      set_later(std::max(top - width - 2 - static_cast<int>(next() % 3), lowest));
  }
  return one;
}

CaseKind kind_of_tile(int tile) {
  const int turn = tile % 8;
  return turn < 5 ? CaseKind::adversarial : turn < 7 ? CaseKind::random : CaseKind::special;
}

}  // namespace

CaseBatch make_batch(const ProbedInstruction& probe, std::uint64_t seed, std::uint64_t batch,
                     int tiles) {
  CaseBatch made{batch % 8 == 7 ? kChained : 1, {}};
  InstructionModel model = probe.instruction();
  if (batch % 2 == 1) model.accumulator = probe.prediction().accumulator;
  const int terms = made.steps * probe.terms_of_step();
  const auto count = static_cast<std::size_t>(terms);
  const bool narrow = format(probe.a_format).code_bits() <= 8;
  const RandomStream random(seed, "cuda/aimed");
  const RandomStream scales(seed, "cuda/aimed scales");
  const CaseGenerator generator(model, probe.scales, terms, seed);
  const int pairs = narrow && batch == 0 ? pair_tiles(probe) : 0;
  made.cases.resize(static_cast<std::size_t>(tiles) * kTile);
#pragma omp parallel for schedule(dynamic, 4)
  for (int tile = 0; tile < tiles; ++tile)
    for (int i = 0; i < kTile; ++i) {
      const auto at = static_cast<std::size_t>(tile * kTile + i);
      const std::uint64_t index =
          batch * static_cast<std::uint64_t>(kBatchTiles) * kTile + static_cast<std::uint64_t>(at);
      VectorCase& one = made.cases[at];
      const bool pair = tile < pairs;
      if (!pair && tile % 16 != 15) {
        one = generator.make(kind_of_tile(tile), index);
        continue;
      }
      const bool low = !pair && i % 2 == 0;
      one = pair  ? code_pair(probe, count, seed % count, tile, i)
            : low ? bottom(probe, count, random, index)
                  : chained_ties(probe, count, random, index);
      add_scales(probe, low, scales, index, one);
    }
  return made;
}

}  // namespace fp8lab::cuda
