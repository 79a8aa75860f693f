#include "tool/judge_rounding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::array kCasts{
    StochasticCast{"cvt.rs.satfinite.e4m3x4.f32", FormatId::e4m3fn, 4, true},
    StochasticCast{"cvt.rs.satfinite.e5m2x4.f32", FormatId::e5m2, 4, true},
    StochasticCast{"cvt.rs.satfinite.e2m3x4.f32", FormatId::e2m3, 4, true},
    StochasticCast{"cvt.rs.satfinite.e3m2x4.f32", FormatId::e3m2, 4, true},
    StochasticCast{"cvt.rs.satfinite.e2m1x4.f32", FormatId::e2m1, 4, true},
    StochasticCast{"cvt.rs.f16x2.f32", FormatId::f16, 2, false},
    StochasticCast{"cvt.rs.bf16x2.f32", FormatId::bf16, 2, false},
};

CastPolicy policy_of(const StochasticCast& cast, RoundingMode rounding) {
  CastPolicy policy = cast.saturating ? kNvidiaSatfinite : kNvidiaNosat;
  policy.rounding = rounding;
  return policy;
}

/// A value's code toward zero and the next one in magnitude, and how far it is from the first.
struct Neighbours {
  std::uint32_t low;
  std::uint32_t high;
  /// 0 where no random bits decide: the value is exact, special or too large. It is low then, or
  /// what is too large may be high as well.
  double fraction;
};

Neighbours neighbours_of(const StochasticCast& cast, float value) {
  const Format& f = format(cast.to);
  const std::uint32_t low = encode(f, policy_of(cast, RoundingMode::toward_zero), value);
  const RoundingMode away = std::signbit(value) ? RoundingMode::downward : RoundingMode::upward;
  const std::uint32_t high = encode(f, policy_of(cast, away), value);
  const double from = decode(f, low);
  const double magnitude = std::abs(static_cast<double>(value));
  if (!std::isfinite(value) || low == high || std::abs(from) == magnitude) return {low, low, 0.0};
  // Beyond the largest value the next one would have the same distance as the last one.
  const double below = std::abs(from);
  const double step = std::isfinite(decode(f, high)) ? std::abs(decode(f, high)) - below
                                                     : below - std::abs(decode(f, low - 1));
  const double fraction = (magnitude - below) / step;
  return {low, high, fraction < 1.0 ? fraction : 0.0};
}

std::uint32_t bits_from(std::uint32_t random, const RandomBits& bits) {
  const std::uint32_t mask = (std::uint32_t{1} << bits.width) - 1u;
  std::uint32_t field = (random >> bits.first) & mask;
  if (!bits.reversed) return field;
  std::uint32_t turned = 0;
  for (int i = 0; i < bits.width; ++i, field >>= 1) turned = turned << 1 | (field & 1u);
  return turned;
}

bool rounds_up(double fraction, std::uint32_t random, const RandomBits& bits) {
  const std::uint32_t all = (std::uint32_t{1} << bits.width) - 1u;
  const auto cut = static_cast<std::uint32_t>(std::ldexp(fraction, bits.width));
  const std::uint32_t r = bits_from(random, bits);
  switch (bits.rule) {
    case UpRule::sum_carries:
      return cut + r > all;
    case UpRule::fraction_above:
      return cut > r;
    case UpRule::complement:
      return cut + (all - r) > all;
  }
  return false;
}

std::vector<StochasticInput> make_inputs(const StochasticCast& cast, std::uint64_t seed,
                                         std::size_t count) {
  const Format& f = format(cast.to);
  const RandomStream random(seed, cast.name);
  const auto value = [&](std::uint64_t at) {
    const std::uint32_t kind = random.bits32(4 * at) % 16;
    const std::uint32_t bits = random.bits32(4 * at + 1);
    const auto code = static_cast<std::uint32_t>(
        random.below(2 * at + 1, std::uint64_t{f.max_finite_code()} + 1));
    const float sign = bits >> 31 != 0 ? -1.0F : 1.0F;
    if (kind == 0) return std::bit_cast<float>(bits);  // anything
    if (kind == 1) return sign * static_cast<float>(decode(f, code));
    if (kind == 2) return sign * static_cast<float>(f.max_finite() * (1.0 + 1e-3 * (bits % 999)));
    if (kind == 3) return sign * static_cast<float>(f.min_normal() * (bits % 99991) / 99991.0);
    // Between two neighbours.
    const double low = decode(f, code);
    const double high = decode(f, std::min(code + 1, f.max_finite_code()));
    return sign * static_cast<float>(low + (high - low) * random.uniform(at));
  };
  std::vector<StochasticInput> inputs(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t e = 0; e < 4; ++e) inputs[i].values[e] = value(4 * i + e);
    inputs[i].random = random.bits32(4 * (4 * count + i) + 3);
  }
  return inputs;
}

std::vector<RandomBits> all_random_bits() {
  std::vector<RandomBits> all;
  // Wide fields first: of two that agree on everything seen, the wider one says more.
  for (int width = 24; width >= 2; --width)
    for (int first = 0; first + width <= 32; ++first)
      for (const bool reversed : {false, true})
        for (const UpRule rule : {UpRule::sum_carries, UpRule::fraction_above, UpRule::complement})
          all.push_back({first, width, reversed, rule});
  return all;
}

struct Seen {
  double fraction;
  std::uint32_t random;
  bool up;
};

std::string explained(const std::vector<Seen>& seen, bool& found) {
  std::string names;
  for (const RandomBits& bits : all_random_bits()) {
    const auto agrees = [&](const Seen& one) {
      return rounds_up(one.fraction, one.random, bits) == one.up;
    };
    if (!std::all_of(seen.begin(), seen.end(), agrees)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " or ", to_string(bits));
  }
  found = !names.empty();
  return found ? names : "no bits and rule that were tried";
}

}  // namespace

std::span<const StochasticCast> stochastic_casts() { return kCasts; }

std::string to_string(const RandomBits& bits) {
  constexpr std::array<const char*, 3> kRules{"added below the last place",
                                              "up where the fraction is above them",
                                              "complemented and added below the last place"};
  return fmt::format("bits {} to {}{}, {}", bits.first, bits.first + bits.width - 1,
                     bits.reversed ? " reversed" : "", kRules[static_cast<std::size_t>(bits.rule)]);
}

std::uint32_t rounded(const StochasticCast& cast, float value, std::uint32_t random,
                      const RandomBits& bits) {
  const Neighbours two = neighbours_of(cast, value);
  return two.fraction > 0.0 && rounds_up(two.fraction, random, bits) ? two.high : two.low;
}

CheckRow judge_rounding(const StochasticCast& cast, const RunStochastic& run, std::uint64_t seed,
                        std::size_t count) {
  constexpr std::uint64_t kShown = 20;
  const std::vector<StochasticInput> inputs = make_inputs(cast, seed, count);
  const std::vector<std::uint32_t> words = run(inputs);
  require(words.size() == count, "run", fmt::format("{} words", count), words.size());
  CheckRow row{std::string(cast.name), count * static_cast<std::uint64_t>(cast.elements), 0};
  bool explains_all = true;
  for (int e = 0; e < cast.elements; ++e) {
    std::vector<Seen> seen;
    for (std::size_t i = 0; i < count; ++i) {
      const float value = inputs[i].values[static_cast<std::size_t>(e)];
      const std::uint32_t code = code_in(cast, words[i], e);
      const Neighbours two = neighbours_of(cast, value);
      if (code == two.low || code == two.high) {
        if (two.fraction > 0.0) seen.push_back({two.fraction, inputs[i].random, code == two.high});
        continue;
      }
      if (++row.mismatches <= kShown)
        fmt::print(
            "{}: element {}, input {:08x}, random bits {:08x}: the chip gives {:x}, not {:x} "
            "or {:x}\n",
            row.name, e, std::bit_cast<std::uint32_t>(value), inputs[i].random, code, two.low,
            two.high);
    }
    bool found = false;
    row.note += fmt::format("{}element {}: {}", e == 0 ? "" : "; ", e, explained(seen, found));
    explains_all = explains_all && found;
  }
  if (!explains_all) row.problem = "random bits not explained";
  return row;
}

}  // namespace fp8lab::cuda
