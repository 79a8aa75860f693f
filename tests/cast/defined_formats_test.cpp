// Casts of arrays into formats beyond the table, and back, and under policies that have no kernel:
// the bits of the scalar reference, on every target.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cast/cast_cases.hpp"
#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"

using namespace fp8lab;

namespace {

const char* const kNarrow[] = {"e4m3fn",
                               "e5m2",
                               "e8m0fnu",
                               "e3m4",
                               "e4m3_ieee",
                               "e4m3b11fnuz",
                               "ue4m3",
                               "ue5m3",
                               "binary8p3se",
                               "binary8p1uf",
                               "float:e=2,m=2,nan=one",
                               "float:e=4,m=3,subnormals=flushed"};

/// Those of all profiles, and each choice that has no kernel by itself.
std::vector<CastPolicy> policies() {
  std::vector<CastPolicy> all;
  for (const CastProfile& profile : kCastProfiles) all.push_back(profile.policy);
  all.push_back({.overflow = OverflowPolicy::by_direction});
  all.push_back({.infinity = InfinityPolicy::propagate});
  all.push_back({.unsigned_target = UnsignedPolicy::least});
  return all;
}

std::vector<float> some_floats() {
  std::vector<float> values{0.0F, -0.0F, HUGE_VALF, -HUGE_VALF, NAN, -NAN};
  const RandomStream draws(5, "defined");
  for (std::uint64_t i = 0; i < 5000; ++i)
    values.push_back(i % 2 == 0 ? std::bit_cast<float>(draws.bits32(i))
                                : static_cast<float>(draws.normal(i)));
  return values;
}

}  // namespace

TEST_CASE("arrays cast into defined formats, and under any policy, as single numbers do",
          "[cast]") {
  const std::vector<float> in = some_floats();
  for (const Target target : available_targets())
    for (const char* name : kNarrow)
      for (const CastPolicy& policy : policies())
        for (int place = 0; place <= static_cast<int>(RoundingMode::to_odd); ++place) {
          const auto mode = static_cast<RoundingMode>(place);
          INFO(name << " " << to_string(policy.overflow) << " " << to_string(policy.infinity) << " "
                    << to_string(mode));
          const Format& f = find_format(name);
          EncodeOptions options{.format = f.id,
                                .policy = policy,
                                .scale = 0.75F,
                                .statistics = GatherStatistics::all};
          options.policy.rounding = mode;
          options.random = RandomStream(3, "draws");
          options.target = target;
          std::vector<std::uint8_t> codes(in.size());
          const EncodeStatistics statistics = encode(in, codes, options);
          EncodeStatistics expected;
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < in.size(); ++i) {
            const float x = in[i] * options.scale;
            const CastResult r = cast(f, options.policy, x, options.random->bits32(i));
            wrong += r.code == codes[i] ? 0 : 1;
            expected.overflowed += r.overflowed ? 1 : 0;
            expected.nan += r.nan ? 1 : 0;
          }
          CHECK(wrong == 0);
          CHECK(statistics.overflowed == expected.overflowed);
          CHECK(statistics.nan == expected.nan);
        }
}

TEST_CASE("arrays of defined formats decode as single codes do", "[cast]") {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  for (const Target target : available_targets())
    for (const char* name : kNarrow) {
      INFO(name);
      const Format& f = find_format(name);
      std::vector<float> values(codes.size());
      decode(codes, values, {.format = f.id, .inverse_scale = 3.0F, .target = target});
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const float expected = static_cast<float>(decode(f, codes[i])) * 3.0F;
        const bool same = std::isnan(expected) ? std::isnan(values[i]) : expected == values[i];
        wrong += same ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("arrays cast into defined formats of 9 to 16 bits", "[cast]") {
  const std::vector<float> in = some_floats();
  for (const char* name : {"binary12p6se", "binary16p9uf", "float:e=5,m=9", "float:e=11,m=4"}) {
    INFO(name);
    const Format& f = find_format(name);
    std::vector<std::uint16_t> codes(in.size());
    encode(in, codes, {.format = f.id, .policy = kMlDtypes});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < in.size(); ++i)
      wrong += codes[i] == encode(f, kMlDtypes, in[i]) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("casts of arrays refuse defined formats that do not fit", "[cast]") {
  std::vector<std::uint8_t> codes(4);
  std::vector<std::uint16_t> words(4);
  std::vector<float> values(4);
  const FormatId wide = find_format("binary12p6se").id;
  CHECK_THROWS_WITH(encode(values, codes, {.format = wide}),
                    "format: expected a format of at most eight bits, got binary12p6se");
  CHECK_THROWS_WITH(encode(values, words, {.format = find_format("e3m4").id}),
                    "format: expected a format of 9 to 16 bits, got e3m4");
  CHECK_THROWS_WITH(decode(codes, values, {.format = wide}),
                    "format: expected a format of at most eight bits, got binary12p6se");
  CHECK_THROWS_WITH(
      decode(codes, values, {.format = find_format("float:e=5,m=2,bias=400").id}),
      "format: expected a format whose values binary32 represents, got float:e=5,m=2,bias=400");
}
