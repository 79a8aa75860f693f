// Every one of the 2^32 binary32 inputs, or a share of them (sweep_share.hpp). The vector kernels
// are compared with a table of two codes for each upper half, one for a lower half of zero and one
// for any other; that the scalar reference is such a table is checked by running it on all 2^32
// inputs too.

#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "cast_cases.hpp"
#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;

namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::uint32_t kChunks = 65536 / kChunk;

struct UpperHalfTable {
  std::vector<std::uint8_t> exact = std::vector<std::uint8_t>(65536);
  std::vector<std::uint8_t> sticky = std::vector<std::uint8_t>(65536);
};

UpperHalfTable reference_table(const Format& f, const CastPolicy& policy) {
  UpperHalfTable table;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    const auto code = [&](std::uint32_t lower) {
      return static_cast<std::uint8_t>(
          encode(f, policy, std::bit_cast<float>(upper << 16 | lower)));
    };
    table.exact[upper] = code(0);
    table.sticky[upper] = code(1);
    for (const std::uint32_t lower : {2u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      if (code(lower) != table.sticky[upper]) FAIL("upper half " << upper << " is not one code");
  }
  return table;
}

/// The first input of the chunk whose code is not the table's, or -1.
std::int64_t first_difference(const UpperHalfTable& table, std::uint32_t upper, std::uint32_t chunk,
                              const std::array<std::uint8_t, kChunk>& codes) {
  const std::uint8_t sticky = table.sticky[upper];
  const bool first_ok = codes[0] == (chunk == 0 ? table.exact[upper] : sticky);
  if (first_ok && codes[1] == sticky &&
      std::memcmp(codes.data() + 1, codes.data() + 2, kChunk - 2) == 0)
    return -1;
  for (std::size_t i = 0; i < kChunk; ++i) {
    const bool exact = chunk == 0 && i == 0;
    if (codes[i] != (exact ? table.exact[upper] : sticky))
      return static_cast<std::int64_t>(upper << 16 | chunk * kChunk |
                                       static_cast<std::uint32_t>(i));
  }
  return -1;
}

/// Calls `produce(first bits, codes)` for all inputs, chunk by chunk; returns the number of
/// chunks that differ from the table and the first input that does.
template <typename Produce>
std::pair<std::uint64_t, std::int64_t> sweep(const UpperHalfTable& table, const SweepShare& share,
                                             const Produce& produce) {
  std::atomic<std::uint64_t> bad = 0;
  std::atomic<std::int64_t> first = -1;
#pragma omp parallel for schedule(dynamic, 256)
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    if (!share.takes(upper)) continue;
    std::array<std::uint8_t, kChunk> codes;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      produce(upper << 16 | chunk * static_cast<std::uint32_t>(kChunk), codes);
      const std::int64_t at = first_difference(table, upper, chunk, codes);
      if (at < 0) continue;
      ++bad;
      std::int64_t none = -1;
      first.compare_exchange_strong(none, at);
    }
  }
  return {bad, first};
}

struct Case {
  FormatId format;
  std::string_view profile;
  std::optional<RoundingMode> rounding = {};  ///< instead of the profile's

  [[nodiscard]] CastPolicy policy() const {
    CastPolicy result = find_cast_profile(profile).policy;
    result.rounding = rounding.value_or(result.rounding);
    return result;
  }
};

/// Every kernel for rounding to nearest, with and without saturation, with every NaN policy; and
/// the other modes, with every kind of small numbers.
constexpr std::array<Case, 19> kCases{
    {{FormatId::e4m3fn, "nvidia_satfinite"},
     {FormatId::e4m3fn, "nvidia_nosat"},
     {FormatId::e4m3fn, "ml_dtypes"},
     {FormatId::e4m3fn, "flush"},
     {FormatId::e4m3fn, "seed_toy"},
     {FormatId::e5m2, "nvidia_satfinite"},
     {FormatId::e5m2, "nvidia_nosat"},
     {FormatId::e5m2, "ml_dtypes"},
     {FormatId::e5m2, "flush"},
     {FormatId::e5m2, "seed_toy"},
     {FormatId::e4m3fnuz, "ml_dtypes"},
     {FormatId::e5m2fnuz, "flush"},
     {FormatId::e4m3fn, "nvidia_satfinite", RoundingMode::nearest_away},
     {FormatId::e4m3fn, "ml_dtypes", RoundingMode::nearest_toward_zero},
     {FormatId::e4m3fn, "nvidia_nosat", RoundingMode::toward_zero},
     {FormatId::e4m3fn, "nvidia_satfinite", RoundingMode::upward},
     {FormatId::e5m2, "ml_dtypes", RoundingMode::downward},
     {FormatId::e5m2fnuz, "seed_toy", RoundingMode::upward},
     {FormatId::e4m3fn, "flush", RoundingMode::downward}}};

}  // namespace

TEST_CASE("the scalar reference over all 2^32 inputs depends on upper half and sticky bit",
          "[cast][exhaustive][slow]") {
  const SweepShare share;
  const auto check = [&](const auto& format_constant, const auto& policy_constant) {
    const UpperHalfTable table = reference_table(format_constant, policy_constant);
    const auto [bad, first] =
        sweep(table, share, [&](std::uint32_t bits, std::array<std::uint8_t, kChunk>& codes) {
          for (std::size_t i = 0; i < kChunk; ++i)
            codes[i] = static_cast<std::uint8_t>(
                encode(format_constant, policy_constant,
                       std::bit_cast<float>(bits + static_cast<std::uint32_t>(i))));
        });
    INFO(format_constant.name << ", first differing input " << std::hex << first);
    CHECK(bad == 0);
  };
  check(format(FormatId::e4m3fn), kNvidiaSatfinite);
  check(format(FormatId::e5m2), kMlDtypes);
}

TEST_CASE("every vector target equals the reference for all 2^32 inputs",
          "[cast][exhaustive][slow]") {
  const SweepShare share;
  for (const Case& one : kCases) {
    const FormatId id = one.format;
    const CastPolicy policy = one.policy();
    const UpperHalfTable table = reference_table(format(id), policy);
    for (const Target target : available_targets()) {
      if (target == Target::scalar) continue;
      const EncodeOptions options{.format = id, .policy = policy, .target = target};
      const auto [bad, first] =
          sweep(table, share, [&](std::uint32_t bits, std::array<std::uint8_t, kChunk>& codes) {
            std::array<float, kChunk> in;
            for (std::size_t i = 0; i < kChunk; ++i)
              in[i] = std::bit_cast<float>(bits + static_cast<std::uint32_t>(i));
            encode(in, codes, options);
          });
      INFO(format(id).name << " " << one.profile << " " << to_string(policy.rounding) << " on "
                           << to_string(target) << ", first differing input " << std::hex << first);
      CHECK(bad == 0);
    }
  }
}
