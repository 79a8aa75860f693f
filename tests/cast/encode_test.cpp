#include "fp8lab/cast/encode.hpp"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>

#include "cast_cases.hpp"
#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Finite values over many binades, with zeros, infinities and NaN of both signs in between.
std::vector<float> mixed_values(std::size_t count, std::uint64_t seed) {
  const RandomStream stream(seed, "mixed values");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = stream.bits32(i);
    const std::uint32_t kind = bits % 64;
    const float near_one =
        std::bit_cast<float>((bits & 0x80ffffffu) + 0x38000000u + ((bits >> 6 & 0xfu) << 23));
    const float special[] = {0.0f, -0.0f, std::bit_cast<float>(0x7f800000u),
                             std::bit_cast<float>(0xff800000u),
                             std::bit_cast<float>(bits | 0x7f800000u)};
    values[i] = kind < 5 ? special[kind] : kind < 10 ? std::bit_cast<float>(bits) : near_one;
  }
  return values;
}

constexpr std::array<RoundingMode, 7> kModes{
    RoundingMode::nearest_even, RoundingMode::nearest_away, RoundingMode::nearest_toward_zero,
    RoundingMode::toward_zero,  RoundingMode::upward,       RoundingMode::downward,
    RoundingMode::stochastic};

/// One number an element whose discarded fraction, with the draw of that element, reaches the next
/// code by a hair or misses it by one: those around code + (1 - draw / 2^32) steps. A quarter of
/// them lie below the smallest subnormal.
std::vector<float> beside_carries(const Format& f, const RandomStream& draws, std::size_t count) {
  const RandomStream choices(21, "beside carries");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t choice = choices.bits32(i);
    const auto code = choice % 4 == 0 ? 0 : (choice >> 8) % f.max_finite_code();
    const double below = decode(f, code);
    const double missing = 0x1p32 - static_cast<double>(draws.bits32(i));
    const double value = below + (decode(f, code + 1) - below) * (missing * 0x1p-32);
    auto x = static_cast<float>(value);
    if (static_cast<double>(x) < value)
      x = std::nextafter(x, std::numeric_limits<float>::infinity());
    if ((choice & 0x10) != 0) x = std::nextafter(x, 0.0f);
    values[i] = (choice & 0x20) != 0 ? -x : x;
  }
  return values;
}

template <typename T>
std::vector<T> prefix(const std::vector<T>& values, std::size_t count) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("every profile of every format encodes as the reference does", "[cast][encode]") {
  for (const FormatId id : byte_formats()) {
    const Format& f = format(id);
    std::vector<float> in = all_upper_halves();
    const std::vector<float> near = neighbourhoods(f);
    in.insert(in.end(), near.begin(), near.end());
    for (const CastProfile& profile : kCastProfiles)
      check_all_targets(in, {.format = id, .policy = profile.policy},
                        std::string(f.name) + " " + std::string(profile.name));
  }
}

TEST_CASE("every rounding mode and odd policy encodes as the reference does", "[cast][encode]") {
  const CastPolicy mixed{.overflow = OverflowPolicy::non_saturating,
                         .infinity = InfinityPolicy::saturate,
                         .nan = NanPolicy::signed_quiet};
  const CastPolicy early{.overflow = OverflowPolicy::non_saturating, .max_magnitude = 1.5};
  for (const FormatId id : byte_formats()) {
    const Format& f = format(id);
    std::vector<float> in = neighbourhoods(f);
    const std::vector<float> random = mixed_values(10000, 1);
    in.insert(in.end(), random.begin(), random.end());
    for (const RoundingMode mode : kModes) {
      for (CastPolicy policy :
           {kNvidiaSatfinite, kNvidiaNosat, kMlDtypes, kFlush, kSeedToy, mixed, early}) {
        policy.rounding = mode;
        EncodeOptions options{.format = id, .policy = policy};
        if (mode == RoundingMode::stochastic) options.random.emplace(7, 3);
        check_all_targets(in, options, std::string(f.name) + " " + std::string(to_string(mode)));
      }
    }
  }
}

TEST_CASE("every rounding mode of every upper half is the reference's", "[cast][encode]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2fnuz, FormatId::e2m1}) {
    for (const RoundingMode mode : kModes) {
      EncodeOptions options{.format = id, .policy = kOcpNonsaturating};
      options.policy.rounding = mode;
      if (mode == RoundingMode::stochastic) options.random.emplace(7, 3);
      check_all_targets(all_upper_halves(), options,
                        std::string(format(id).name) + " " + std::string(to_string(mode)));
    }
  }
}

TEST_CASE("scaling comes before every rounding mode", "[cast][encode]") {
  std::vector<float> in = mixed_values(2000, 8);
  // Products that are binary32 subnormals or zeros still round upward, and may carry.
  for (std::uint32_t i = 0; i < 500; ++i)
    in.push_back(std::bit_cast<float>((i % 2 << 31) + 1u + i * 16411u));
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e5m2fnuz, FormatId::e3m2})
    for (const RoundingMode mode : kModes)
      for (CastPolicy policy : {kNvidiaSatfinite, kMlDtypes, kFlush, kSeedToy})
        for (const float scale : {0.37f, 0x1p-40f, 0x1p-99f, 0x1p-110f, 0x1p-149f, 0x1p70f,
                                  0x1.8p71f, 0x1p100f, 0x1p127f}) {
          policy.rounding = mode;
          EncodeOptions options{.format = id, .policy = policy, .scale = scale};
          if (mode == RoundingMode::stochastic) options.random.emplace(7, 3);
          check_all_targets(in, options,
                            std::string(format(id).name) + " " + std::string(to_string(mode)));
        }
}

TEST_CASE("stochastic rounding carries exactly where fraction and draw reach one",
          "[cast][encode][stochastic]") {
  const RandomStream draws(31, "carries");
  constexpr std::size_t kCount = 40000;
  for (CastPolicy policy : {kNvidiaSatfinite, kNvidiaNosat}) {
    policy.rounding = RoundingMode::stochastic;
    for (const FormatId id : byte_formats()) {
      if (format(id).is_scale_only()) continue;
      check_all_targets(beside_carries(format(id), draws, kCount),
                        {.format = id, .policy = policy, .random = draws},
                        std::string(format(id).name));
    }
    for (const FormatId id : {FormatId::f16, FormatId::bf16})
      check_all_targets<std::uint16_t>(beside_carries(format(id), draws, kCount),
                                       {.format = id, .policy = policy, .random = draws},
                                       std::string(format(id).name));
    // Binary32 subnormals that a scale brings back to where they carry.
    std::vector<float> in = beside_carries(format(FormatId::e5m2fnuz), draws, kCount);
    for (float& x : in) x *= 0x1p-100f;
    check_all_targets(
        in, {.format = FormatId::e5m2fnuz, .policy = policy, .scale = 0x1p100f, .random = draws},
        "e5m2fnuz, scaled subnormals");
  }
}

TEST_CASE("FP16 and BF16 are encoded as the reference does", "[cast][encode]") {
  for (const FormatId id : {FormatId::f16, FormatId::bf16}) {
    for (const RoundingMode mode : kModes) {
      for (CastPolicy policy : {kNvidiaSatfinite, kMlDtypes, kFlush}) {
        policy.rounding = mode;
        EncodeOptions options{.format = id, .policy = policy};
        if (mode == RoundingMode::stochastic) options.random.emplace(7, 3);
        check_all_targets<std::uint16_t>(all_upper_halves(), options, std::string(format(id).name));
      }
    }
  }
}

TEST_CASE("scaling, statistics and the cast are one pass with the reference's bits",
          "[cast][encode]") {
  std::vector<float> in = mixed_values(8000, 2);
  // Binary32 subnormals: ignored where that is safe, kept where a large scale brings them back.
  for (std::uint32_t i = 0; i < 500; ++i) in.push_back(std::bit_cast<float>(1u + i * 16411u));
  for (const FormatId id : byte_formats())
    for (const CastProfile& profile : kCastProfiles)
      for (const float scale : {0.37f, 448.0f / 3.1f, 0x1p-40f, 0x1p-110f, 0x1p-149f, 0x1p100f,
                                0x1.8p101f, 0x1p127f, std::numeric_limits<float>::max()})
        check_all_targets(in, {.format = id, .policy = profile.policy, .scale = scale},
                          std::string(format(id).name) + " " + std::string(profile.name));
}

TEST_CASE("amax of data that holds nothing but subnormals is exact", "[cast][encode]") {
  std::vector<float> in(300, -std::bit_cast<float>(3u));
  in[77] = std::bit_cast<float>(17u);
  check_all_targets(in, {}, "subnormals");
}

TEST_CASE("any length and alignment encodes the same and touches nothing else", "[cast][encode]") {
  const std::vector<float> in = mixed_values(400, 3);
  CastPolicy upward = kNvidiaSatfinite;
  upward.rounding = RoundingMode::upward;
  for (const CastPolicy& policy : {kNvidiaSatfinite, kFlush, kSeedToy, upward}) {
    const EncodeOptions whole{.policy = policy, .target = Target::scalar};
    const Expected expected = expect(in, whole);
    for (const Target target : available_targets()) {
      const EncodeOptions options{.policy = policy, .target = target};
      for (std::size_t length = 0; length <= 200; ++length) {
        const std::size_t offset = length % 67;
        std::vector<std::uint8_t> out(length + 140, 0xa5);
        encode(std::span(in).subspan(offset, length), std::span(out).subspan(offset, length),
               options);
        bool equal = true;
        for (std::size_t i = 0; i < out.size(); ++i) {
          const bool inside = i >= offset && i < offset + length;
          equal = equal && out[i] == (inside ? expected.codes[i] : 0xa5);
        }
        INFO(to_string(target) << " length " << length << " offset " << offset);
        REQUIRE(equal);
      }
    }
  }
}

TEST_CASE("calls too large for the caches give the same bits for any thread count",
          "[cast][encode]") {
  constexpr std::size_t kCount = (std::size_t{1} << 21) + 77;
  const std::vector<float> in = mixed_values(kCount, 4);
  CastPolicy toward_zero = kNvidiaSatfinite;
  toward_zero.rounding = RoundingMode::toward_zero;
  CastPolicy downward = kMlDtypes;
  downward.rounding = RoundingMode::downward;
  for (const auto& [id, policy] :
       {std::pair{FormatId::e4m3fn, kNvidiaSatfinite}, std::pair{FormatId::e5m2, kNvidiaSatfinite},
        std::pair{FormatId::e2m1, kNvidiaSatfinite},
        std::pair{FormatId::e4m3fnuz, kNvidiaSatfinite}, std::pair{FormatId::e4m3fn, kFlush},
        std::pair{FormatId::e4m3fn, kSeedToy}, std::pair{FormatId::e4m3fn, toward_zero},
        std::pair{FormatId::e5m2, downward}, std::pair{FormatId::e8m0fnu, downward}}) {
    EncodeOptions options{.format = id, .policy = policy, .statistics = GatherStatistics::all};
    const Expected expected = expect(in, options);
    for (const Target target : available_targets()) {
      for (const int threads : {1, 2, 3, 0}) {
        options.target = target;
        options.threads = threads;
        // An odd offset: the aligned stores must begin behind a head.
        std::vector<std::uint8_t> out(kCount + 13);
        const EncodeStatistics statistics = encode(in, std::span(out).subspan(13), options);
        INFO(format(id).name << " on " << to_string(target) << ", threads " << threads);
        CHECK(differences(in, expected, std::vector<std::uint8_t>(out.begin() + 13, out.end())) ==
              "");
        CHECK(describe(statistics) == describe(expected.statistics));
      }
    }
  }
}

TEST_CASE("stochastic rounding depends on element, seed and stream alone",
          "[cast][encode][stochastic]") {
  constexpr std::size_t kCount = 200003;
  std::vector<float> in(kCount);
  const RandomStream values(11, "stochastic inputs");
  for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(values.normal(i));
  CastPolicy policy = kNvidiaSatfinite;
  policy.rounding = RoundingMode::stochastic;
  // Draw numbers whose counters carry into the upper word are among them.
  for (const std::uint64_t first :
       {0ull, 1ull, 6ull, 4ull * 0xffffffffull - 5ull, (1ull << 40) + 3ull}) {
    EncodeOptions options{.policy = policy,
                          .statistics = GatherStatistics::all,
                          .random = RandomStream(5, "rounding"),
                          .first_draw = first};
    const Expected expected = expect(in, options);
    for (const Target target : available_targets()) {
      for (const int threads : {1, 2}) {
        options.target = target;
        options.threads = threads;
        std::vector<std::uint8_t> out(kCount);
        const EncodeStatistics statistics = encode(in, out, options);
        INFO(to_string(target) << " threads " << threads << " first draw " << first);
        CHECK(differences(in, expected, out) == "");
        CHECK(statistics == expected.statistics);
      }
    }
  }
}

TEST_CASE("large stochastic casts write the codes of small ones", "[cast][encode][stochastic]") {
  // More than 4 MiB are written around the caches where the first whole counter is on a cache line.
  constexpr std::size_t kCount = (std::size_t{1} << 20) + 77;
  const std::vector<float> in = mixed_values(kCount, 17);
  CastPolicy policy = kNvidiaSatfinite;
  policy.rounding = RoundingMode::stochastic;
  for (const std::uint64_t first : {0ull, 1ull, 3ull}) {
    EncodeOptions options{.policy = policy,
                          .statistics = GatherStatistics::all,
                          .random = RandomStream(5, "rounding"),
                          .first_draw = first};
    const Expected expected = expect(in, options);
    for (const Target target : available_targets()) {
      for (const std::size_t misplaced : {0u, 1u}) {
        options.target = target;
        std::vector<std::uint8_t> memory(kCount + 256, 0xa5);
        const std::size_t head = (4 - first % 4) % 4 + misplaced;
        const std::size_t begin = 128 - (std::bit_cast<std::uintptr_t>(memory.data()) + head) % 64;
        const std::span<std::uint8_t> out = std::span(memory).subspan(begin, kCount);
        const EncodeStatistics statistics = encode(in, out, options);
        INFO(to_string(target) << " first draw " << first << " misplaced by " << misplaced);
        CHECK(differences(in, expected, std::vector(out.begin(), out.end())) == "");
        CHECK(statistics == expected.statistics);
        CHECK(std::ranges::count(memory, 0xa5) >= 256);
        CHECK((memory[begin - 1] == 0xa5 && memory[begin + kCount] == 0xa5));
      }
    }
  }
}

TEST_CASE("stochastic rounding of any length begins at any draw", "[cast][encode][stochastic]") {
  const std::vector<float> in = mixed_values(300, 6);
  CastPolicy policy = kMlDtypes;
  policy.rounding = RoundingMode::stochastic;
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2fnuz, FormatId::e8m0fnu}) {
    for (std::size_t length = 0; length <= 200; length += length < 8 ? 1 : 17) {
      for (std::uint64_t first = 0; first < 6; ++first)
        check_all_targets(prefix(in, length),
                          {.format = id,
                           .policy = policy,
                           .random = RandomStream(9, "lengths"),
                           .first_draw = first},
                          std::string(format(id).name) + " first draw " + std::to_string(first));
    }
  }
}

TEST_CASE("draws in bulk are the stream's", "[cast][stochastic]") {
  const RandomStream stream(0x123456789abcdef0u, "bulk");
  // The lower counter word wraps inside a block, between blocks, and in its first or last lane.
  for (const std::uint64_t first :
       {0ull, 1ull, 3ull, 4ull * 0xffffffffull - 5ull, 4ull * 0xfffffff8ull, 4ull * 0xfffffff9ull,
        4ull * 0xfffffff0ull, 4ull * 0xfffffff1ull, (1ull << 40) + 2ull}) {
    for (const std::size_t count : {0u, 1u, 3u, 4u, 63u, 64u, 65u, 300u}) {
      std::vector<std::uint32_t> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = stream.bits32(first + i);
      for (const Target target : available_targets()) {
        std::vector<std::uint32_t> got(count);
        draw_bits(stream, first, got, target);
        INFO(to_string(target) << " first " << first << " count " << count);
        CHECK(got == expected);
      }
    }
  }
}

TEST_CASE("stochastic rounding is unbiased to within its own noise", "[cast][encode][stochastic]") {
  CastPolicy policy = kNvidiaSatfinite;
  policy.rounding = RoundingMode::stochastic;
  constexpr std::size_t kCount = 1 << 20;
  const std::vector<float> in(kCount, 1.0f + 0.125f * 0.3f);
  std::vector<std::uint8_t> out(kCount);
  encode(in, out, {.policy = policy, .random = RandomStream(1, "bias")});
  const auto up = std::count(out.begin(), out.end(), std::uint8_t{0x39});
  CHECK(up + std::count(out.begin(), out.end(), std::uint8_t{0x38}) ==
        static_cast<std::ptrdiff_t>(kCount));
  // 0.3 of 2^20 with a standard deviation of 469: five of them.
  CHECK(std::abs(static_cast<double>(up) - 0.3 * kCount) < 2346.0);
}

TEST_CASE("FP16 and BF16 input encodes as its widened values do", "[cast][encode]") {
  for (const FormatId input : {FormatId::f16, FormatId::bf16}) {
    std::vector<std::uint16_t> in(65536);
    std::vector<float> widened;
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = static_cast<std::uint16_t>(i);
      widened.push_back(decode_table(input)[i]);
    }
    for (const FormatId id : byte_formats()) {
      for (const Target target : available_targets()) {
        const EncodeOptions options{.format = id,
                                    .policy = kMlDtypes,
                                    .scale = 1.7f,
                                    .statistics = GatherStatistics::all,
                                    .threads = 2,
                                    .target = target};
        const Expected expected = expect(widened, options);
        std::vector<std::uint8_t> out(in.size());
        const EncodeStatistics statistics = encode(in, input, out, options);
        INFO(format(input).name << " to " << format(id).name << " on " << to_string(target));
        CHECK(differences(widened, expected, out) == "");
        CHECK(describe(statistics) == describe(expected.statistics));
      }
    }
  }
}

TEST_CASE("the caller's rounding mode and flags neither matter nor change", "[cast][encode]") {
  const std::vector<float> in = mixed_values(5000, 5);
  const EncodeOptions scaled{.scale = 0.37f};
  const Expected expected = expect(in, scaled);
  for (const Target target : available_targets()) {
    std::vector<std::uint8_t> out(in.size());
    std::fesetround(FE_UPWARD);
    std::feclearexcept(FE_ALL_EXCEPT);
    encode(in, out, {.scale = 0.37f, .target = target});
    const int mode = std::fegetround();
    const int flags = std::fetestexcept(FE_ALL_EXCEPT);
    std::fesetround(FE_TONEAREST);
    INFO(to_string(target));
    CHECK(mode == FE_UPWARD);
    CHECK(flags == 0);
    CHECK(differences(in, expected, out) == "");
  }
}

TEST_CASE("bad arguments of encode are named", "[cast][encode]") {
  std::vector<float> in(8);
  std::vector<std::uint8_t> out(8);
  CHECK_THROWS_WITH(encode(in, std::span(out).first(7)),
                    contains("out: expected as many elements as in, 8, got 7"));
  CHECK_THROWS_WITH(encode(in, out, {.format = FormatId::bf16}), contains("format: expected"));
  CHECK_THROWS_WITH(encode(in, out, {.scale = 0.0f}), contains("scale: expected"));
  CHECK_THROWS_WITH(encode(in, out, {.scale = std::numeric_limits<float>::quiet_NaN()}),
                    contains("scale: expected"));
  CHECK_THROWS_WITH(encode(in, out, {.threads = -1}), contains("threads: expected"));
  CHECK_THROWS_WITH(encode(in, out, {.policy = {.rounding = RoundingMode::stochastic}}),
                    contains("random: expected"));
  std::vector<std::uint16_t> wide(8);
  CHECK_THROWS_WITH(encode(in, wide, {.format = FormatId::e5m2}), contains("format: expected"));
  CHECK_THROWS_WITH(encode(wide, FormatId::f32, out), contains("input: expected"));
  auto* bytes = reinterpret_cast<std::uint8_t*>(in.data());
  CHECK_THROWS_WITH(encode(in, std::span(bytes + 3, 8)), contains("overlaps"));
  CHECK(encode(std::span<const float>(), std::span<std::uint8_t>()) == EncodeStatistics{});
}
