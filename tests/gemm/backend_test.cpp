#include "fp8lab/gemm/backend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

/// Has 2 x 2 products and casts to E5M2 only.
const Backend kSevens{"sevens",
                      [](const GemmProblem& problem, std::span<float> d, int threads) {
                        if (problem.a.rows != 2) return false;
                        std::ranges::fill(d, 7.0F + static_cast<float>(threads));
                        return true;
                      },
                      [](FormatId format, const CastPolicy& policy, std::span<const float> values,
                         std::span<std::uint8_t> codes) {
                        if (format != FormatId::e5m2 || !fits_satfinite(format, policy, values))
                          return false;
                        for (std::size_t i = 0; i < codes.size(); ++i)
                          codes[i] = static_cast<std::uint8_t>(7.0F * values[i]);
                        return true;
                      }};

GemmProblem ones(std::int64_t rows) {
  static const std::vector<std::uint8_t> codes(96, 0x38);
  GemmProblem problem;
  const auto size = static_cast<std::size_t>(rows * 32);
  problem.a = CodeMatrix::row_major(FormatId::e4m3fn, std::span(codes).first(size), rows, 32);
  problem.b = problem.a;
  return problem;
}

}  // namespace

TEST_CASE("a backend runs what it has, the emulator the rest", "[gemm][backend]") {
  std::vector<float> d(4);
  gemm_on(kSevens, ones(2), d, 2);
  CHECK(d == std::vector<float>(4, 9.0F));
  std::vector<float> larger(9);
  CHECK(!try_gemm_on(kSevens, ones(3), larger));
  CHECK(larger == std::vector<float>(9));
  gemm_on(kSevens, ones(3), larger);
  CHECK(larger == std::vector<float>(9, 32.0F));

  const std::vector<float> values{1.0F, 2.0F};
  std::vector<std::uint8_t> codes{1, 1};
  CHECK(try_cast_on(kSevens, FormatId::e5m2, kNvidiaSatfinite, values, codes));
  CHECK(codes == std::vector<std::uint8_t>{7, 14});
  CHECK(!try_cast_on(kSevens, FormatId::e4m3fn, kNvidiaSatfinite, values, codes));
  CHECK(!try_cast_on(kSevens, FormatId::e5m2, kFlush, values, codes));
  CHECK(codes == std::vector<std::uint8_t>{7, 14});
  CHECK_THROWS_WITH(try_cast_on(kSevens, FormatId::e5m2, kNvidiaSatfinite, values, {}),
                    contains("codes: expected 2 codes, as values, got 0"));
}

TEST_CASE("a backend that nobody named is the emulator", "[gemm][backend]") {
  const Backend cpu;
  CHECK(cpu.name == "cpu");
  std::vector<float> d(4);
  CHECK(try_gemm_on(cpu, ones(2), d, 2));
  CHECK(d == std::vector<float>(4, 32.0F));
  std::vector<std::uint8_t> codes{1, 1};
  CHECK(!try_cast_on(cpu, FormatId::e5m2, kNvidiaSatfinite, std::vector{1.0F, 2.0F}, codes));
  CHECK(codes == std::vector<std::uint8_t>{1, 1});
}

TEST_CASE("backends are found by name in a list", "[gemm][backend]") {
  const std::vector<Backend> all{{}, kSevens};
  CHECK(backend_names(all) == std::vector<std::string>{"cpu", "sevens"});
  CHECK(&find_backend(all, "sevens") == &all[1]);
  CHECK_THROWS_WITH(find_backend(all, "eights"),
                    contains("backend: expected one of cpu, sevens, got 'eights'"));
}

TEST_CASE("the chip's cast stands for a policy where no value tells them apart",
          "[gemm][backend]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> tensors{{1.0F, 448.0F}, {449.0F}, {-57345.0F},
                                                {-kInfinity},   {kNan},   {-kNan}};
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2})
    for (const CastProfile& profile : kCastProfiles)
      for (const std::vector<float>& x : tensors) {
        CAPTURE(format(id).name, profile.name, x);
        const bool same = std::ranges::all_of(x, [&](float v) {
          return encode(format(id), profile.policy, v) == encode(format(id), kNvidiaSatfinite, v);
        });
        const bool fits = fits_satfinite(id, profile.policy, x);
        CHECK((!fits || same));
        if (profile.name == "nvidia_satfinite") CHECK(fits);
        if (profile.name == "ocp_saturating") CHECK(fits == same);
        if (profile.name == "seed_toy" || profile.name == "flush") CHECK(!fits);
      }
  CHECK(fits_satfinite(FormatId::e4m3fn, kNvidiaNosat, tensors[0]));
  CHECK(!fits_satfinite(FormatId::e4m3fn, kNvidiaNosat, tensors[1]));
  CHECK(fits_satfinite(FormatId::e5m2, kNvidiaNosat, tensors[1]));
  CHECK(!fits_satfinite(FormatId::e4m3fnuz, kNvidiaSatfinite, tensors[0]));
  // Numbers that saturate beside infinities that stay.
  CastPolicy infinite = kNvidiaSatfinite;
  infinite.infinity = InfinityPolicy::non_saturating;
  CHECK(encode(format(FormatId::e5m2), infinite, kInfinity) !=
        encode(format(FormatId::e5m2), kNvidiaSatfinite, kInfinity));
  CHECK(!fits_satfinite(FormatId::e5m2, infinite, tensors[3]));
  CHECK(fits_satfinite(FormatId::e5m2, infinite, tensors[0]));
}

TEST_CASE("the chip's cast stands for no policy with another grid or end of it",
          "[gemm][backend]") {
  const std::vector<float> tame{1.0F, -0.5F, 0.0F};
  CHECK(fits_satfinite(FormatId::e4m3fn, kNvidiaSatfinite, tame));
  CHECK(fits_satfinite(FormatId::e5m2, kNvidiaSatfinite, {}));
  CastPolicy policy = kNvidiaSatfinite;
  policy.max_magnitude = 240.0;
  CHECK(!fits_satfinite(FormatId::e4m3fn, policy, tame));
  for (const SubnormalPolicy subnormals :
       {SubnormalPolicy::flush_to_zero, SubnormalPolicy::raise_to_min_normal}) {
    policy = kNvidiaSatfinite;
    policy.subnormals = subnormals;
    CHECK(!fits_satfinite(FormatId::e4m3fn, policy, tame));
  }
  using enum RoundingMode;
  for (const RoundingMode mode :
       {nearest_away, nearest_toward_zero, toward_zero, upward, downward, stochastic}) {
    policy = kNvidiaSatfinite;
    policy.rounding = mode;
    CHECK(!fits_satfinite(FormatId::e5m2, policy, tame));
  }
  for (const Format& f : kFormats) {
    INFO(f.name);
    CHECK(fits_satfinite(f.id, kNvidiaSatfinite, tame) ==
          (f.id == FormatId::e4m3fn || f.id == FormatId::e5m2));
  }
  // At the largest number of each format and above, of either sign.
  for (const auto& [id, largest] :
       {std::pair{FormatId::e4m3fn, 448.0F}, std::pair{FormatId::e5m2, 57344.0F}})
    for (const float sign : {1.0F, -1.0F}) {
      policy = kNvidiaSatfinite;
      policy.overflow = OverflowPolicy::non_saturating;
      CHECK(fits_satfinite(id, policy, std::vector{sign * largest}));
      CHECK(!fits_satfinite(id, policy, std::vector{0.0F, sign * std::nextafter(largest, 1e9F)}));
      policy = kNvidiaSatfinite;
      policy.infinity = InfinityPolicy::non_saturating;
      CHECK(fits_satfinite(id, policy, std::vector{sign * largest}));
      CHECK(!fits_satfinite(id, policy,
                            std::vector{sign * std::numeric_limits<float>::infinity(), 1.0F}));
    }
}
