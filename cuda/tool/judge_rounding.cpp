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

/// Values between two neighbours whose fraction is what the random bits of a candidate say, or next
/// to it.
std::vector<StochasticInput> aimed_inputs(const StochasticCast& cast,
                                          const std::vector<std::vector<RandomBits>>& candidates,
                                          std::uint64_t seed, std::size_t count) {
  const Format& f = format(cast.to);
  const RandomStream random(seed, cast.name);
  std::vector<StochasticInput> inputs(count);
  for (std::size_t i = 0; i < count; ++i) {
    inputs[i] = {{}, random.bits32(16 * i)};
    for (std::size_t e = 0; e < candidates.size(); ++e) {
      if (candidates[e].empty()) continue;
      const RandomBits& bits = candidates[e][i % candidates[e].size()];
      const std::uint32_t code = random.bits32(16 * i + 2 * e + 1) % f.max_finite_code();
      const double low = decode(f, code);
      const double beside = 0.5 * (random.bits32(16 * i + 2 * e + 2) % 7) - 1.5;
      const std::uint32_t all = (std::uint32_t{1} << bits.width) - 1u;
      const std::uint32_t r = bits_from(inputs[i].random, bits);
      const double at = bits.rule == UpRule::sum_carries ? all - r : r;
      const double fraction = std::clamp(std::ldexp(at + beside, -bits.width), 0.0, 1.0);
      inputs[i].values[e] = static_cast<float>(low + (decode(f, code + 1) - low) * fraction);
    }
  }
  return inputs;
}

std::vector<RandomBits> all_random_bits() {
  std::vector<RandomBits> all;
  for (int width = 2; width <= 24; ++width)
    for (int first = 0; first + width <= 32; ++first)
      for (const bool reversed : {false, true})
        for (const UpRule rule : {UpRule::sum_carries, UpRule::fraction_above})
          all.push_back({first, width, reversed, rule});
  return all;
}

/// Whether the wider of two fields has the other's bits first: no value may tell them apart.
bool same_but_wider(const RandomBits& narrow, const RandomBits& wide) {
  const auto top = [](const RandomBits& b) { return b.reversed ? b.first : b.first + b.width; };
  return narrow.rule == wide.rule && narrow.reversed == wide.reversed && top(narrow) == top(wide);
}

/// The candidates, without those that are only wider than another one.
std::string to_text(const std::vector<RandomBits>& candidates) {
  std::string names;
  for (auto one = candidates.begin(); one != candidates.end(); ++one) {
    const auto narrower = [&](const RandomBits& other) { return same_but_wider(other, *one); };
    if (std::any_of(candidates.begin(), one, narrower)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " or ", to_string(*one));
  }
  return names.empty() ? "no bits and rule that were tried" : names;
}

}  // namespace

std::span<const StochasticCast> stochastic_casts() { return kCasts; }

std::string to_string(const RandomBits& bits) {
  constexpr std::array<const char*, 2> kRules{"added below the last place",
                                              "up where the fraction is above them"};
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
  constexpr std::uint64_t kRounds = 3;
  CheckRow row{std::string(cast.name), 0, 0};
  std::vector<std::vector<RandomBits>> candidates(static_cast<std::size_t>(cast.elements),
                                                  all_random_bits());
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::vector<StochasticInput> inputs =
        round == 0 ? make_inputs(cast, seed, count)
                   : aimed_inputs(cast, candidates, seed + round, count);
    const std::vector<std::uint32_t> words = run(inputs);
    require(words.size() == count, "run", fmt::format("{} words", count), words.size());
    row.cases += count * candidates.size();
    for (std::size_t e = 0; e < candidates.size(); ++e)
      for (std::size_t i = 0; i < count; ++i) {
        const float value = inputs[i].values[e];
        const std::uint32_t code = code_in(cast, words[i], static_cast<int>(e));
        const Neighbours two = neighbours_of(cast, value);
        if (code != two.low && code != two.high) {
          if (++row.mismatches <= kShown)
            fmt::print(
                "{}: element {}, input {:08x}, random bits {:08x}: the chip gives {:x}, not "
                "{:x} or {:x}\n",
                row.name, e, std::bit_cast<std::uint32_t>(value), inputs[i].random, code, two.low,
                two.high);
        } else if (two.fraction > 0.0) {
          std::erase_if(candidates[e], [&](const RandomBits& bits) {
            return rounds_up(two.fraction, inputs[i].random, bits) != (code == two.high);
          });
        }
      }
  }
  for (std::size_t e = 0; e < candidates.size(); ++e) {
    row.note += fmt::format("{}element {}: {}", e == 0 ? "" : "; ", e, to_text(candidates[e]));
    if (candidates[e].empty()) row.problem = "random bits not explained";
  }
  return row;
}

}  // namespace fp8lab::cuda
