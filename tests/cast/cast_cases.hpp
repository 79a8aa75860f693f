#pragma once
// Inputs and expectations that the tests of the vector casts share.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"

namespace fp8lab::test {

inline const std::vector<FormatId>& byte_formats() {
  static const std::vector<FormatId> kIds{FormatId::e4m3fn,   FormatId::e5m2,    FormatId::e4m3fnuz,
                                          FormatId::e5m2fnuz, FormatId::e8m0fnu, FormatId::e2m1,
                                          FormatId::e2m3,     FormatId::e3m2};
  return kIds;
}

/// Every upper half of a binary32 with the lower halves that decide ties and sticky bits.
inline const std::vector<float>& all_upper_halves() {
  static const std::vector<float> kValues = [] {
    std::vector<float> values;
    values.reserve(6 * 65536);
    for (std::uint32_t upper = 0; upper < 65536; ++upper)
      for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
        values.push_back(std::bit_cast<float>(upper << 16 | lower));
    return values;
  }();
  return kValues;
}

/// Every value of the format, every midpoint of neighbours, and the floats beside both.
inline std::vector<float> neighbourhoods(const Format& f) {
  std::vector<float> values;
  const auto add = [&](double value) {
    const auto x = static_cast<float>(value);
    for (const float y :
         {x, std::nextafter(x, 0.0f), std::nextafter(x, std::numeric_limits<float>::infinity())})
      values.insert(values.end(), {y, -y});
  };
  for (std::uint32_t code = 0; code <= f.max_finite_code(); ++code) {
    const double value = decode(f, code);
    const double next = code < f.max_finite_code() ? decode(f, code + 1) : 2 * value;
    add(value);
    add((value + next) / 2);
    add(value + (value - decode(f, code == 0 ? 0 : code - 1)) / 2);
  }
  return values;
}

struct Expected {
  std::vector<std::uint32_t> codes;
  EncodeStatistics statistics;
};

/// What the scalar reference says, written out once more for the tests.
inline Expected expect(const std::vector<float>& in, const EncodeOptions& options) {
  const Format& f = format(options.format);
  Expected expected;
  expected.codes.reserve(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float x = in[i];
    const std::uint32_t random =
        options.random ? options.random->bits32(options.first_draw + i) : 0;
    const CastResult result = cast(f, options.policy, x * options.scale, random);
    expected.codes.push_back(result.code);
    EncodeStatistics& statistics = expected.statistics;
    if (!std::isnan(x)) statistics.amax = std::max(statistics.amax, std::fabs(x));
    statistics.overflowed += result.overflowed ? 1 : 0;
    statistics.nan += result.nan ? 1 : 0;
    const bool lost =
        result.underflowed || (x != 0.0f && x * options.scale == 0.0f && !f.is_scale_only());
    statistics.underflowed += lost ? 1 : 0;
  }
  return expected;
}

/// At most 20 differing codes, with the inputs that gave them; empty if all are equal.
template <typename Code>
std::string differences(const std::vector<float>& in, const Expected& expected,
                        const std::vector<Code>& got) {
  std::string text;
  int shown = 0;
  for (std::size_t i = 0; i < in.size() && shown < 20; ++i) {
    if (expected.codes[i] == got[i]) continue;
    char line[128];
    std::snprintf(line, sizeof line, "[%zu] %08x (%a): expected %02x, got %02x\n", i,
                  std::bit_cast<std::uint32_t>(in[i]), static_cast<double>(in[i]),
                  expected.codes[i], static_cast<unsigned>(got[i]));
    text += line;
    ++shown;
  }
  return text;
}

inline std::string describe(const EncodeStatistics& s) {
  return "amax " + std::to_string(s.amax) + " overflowed " + std::to_string(s.overflowed) +
         " underflowed " + std::to_string(s.underflowed) + " nan " + std::to_string(s.nan);
}

/// Encodes on every target with and without statistics and compares every bit.
template <typename Code = std::uint8_t>
void check_all_targets(const std::vector<float>& in, EncodeOptions options,
                       const std::string& name) {
  const Expected expected = expect(in, options);
  std::vector<Code> got(in.size());
  for (const Target target : available_targets()) {
    options.target = target;
    for (const auto gather :
         {GatherStatistics::none, GatherStatistics::amax, GatherStatistics::all}) {
      if (target == Target::scalar && gather != GatherStatistics::all) continue;
      options.statistics = gather;
      std::fill(got.begin(), got.end(), Code{0x55});
      const EncodeStatistics statistics = encode(in, std::span<Code>(got), options);
      INFO(name << " on " << to_string(target) << ", scale " << options.scale);
      CHECK(differences(in, expected, got) == "");
      EncodeStatistics wanted;
      if (gather != GatherStatistics::none) wanted.amax = expected.statistics.amax;
      if (gather == GatherStatistics::all) wanted = expected.statistics;
      CHECK(describe(statistics) == describe(wanted));
      CHECK(statistics == wanted);
    }
  }
}

}  // namespace fp8lab::test
