#include <bit>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t code(const char* profile, FormatId id, float x) {
  return encode(format(id), find_cast_profile(profile).policy, x);
}

}  // namespace

TEST_CASE("infinities and NaN by profile", "[cast]") {
  using enum FormatId;
  CHECK(code("nvidia_satfinite", e4m3fn, kInf) == 0x7e);
  CHECK(code("nvidia_satfinite", e4m3fn, -kInf) == 0xfe);
  CHECK(code("nvidia_satfinite", e5m2, -kInf) == 0xfb);
  CHECK(code("nvidia_nosat", e4m3fn, -kInf) == 0xff);
  CHECK(code("nvidia_nosat", e5m2, kInf) == 0x7c);
  CHECK(code("nvidia_nosat", e4m3fn, -kNan) == 0x7f);
  CHECK(code("nvidia_nosat", e5m2, kNan) == 0x7f);
  CHECK(code("ml_dtypes", e5m2, kNan) == 0x7e);
  CHECK(code("ml_dtypes", e5m2, -kNan) == 0xfe);
  CHECK(code("ml_dtypes", e4m3fnuz, -kInf) == 0x80);
  CHECK(code("ocp_saturating", e4m3fn, kInf) == 0x7e);
  CHECK(code("ocp_nonsaturating", e4m3fn, kInf) == 0x7f);
  CHECK(code("nvidia_satfinite", e2m1, kNan) == 0x7);
  CHECK(code("nvidia_satfinite", e4m3fnuz, -0.0F) == 0x00);
}

TEST_CASE("overflow is decided after rounding", "[cast]") {
  using enum FormatId;
  const float above_tie = std::nextafter(464.0F, kInf);
  CHECK(code("nvidia_nosat", e4m3fn, 464.0F) == 0x7e);
  CHECK(code("nvidia_nosat", e4m3fn, above_tie) == 0x7f);
  CHECK(code("nvidia_satfinite", e4m3fn, above_tie) == 0x7e);
  CHECK(code("nvidia_nosat", e5m2, std::nextafter(61440.0F, 0.0F)) == 0x7b);
  CHECK(code("nvidia_nosat", e5m2, 61440.0F) == 0x7c);
}

TEST_CASE("subnormals preserved, flushed, or raised as the tutorial's listing does", "[cast]") {
  using enum FormatId;
  const float largest_subnormal = 7.0F / 512.0F;
  CHECK(code("nvidia_satfinite", e4m3fn, largest_subnormal) == 0x07);
  CHECK(code("flush", e4m3fn, largest_subnormal) == 0x00);
  CHECK(code("flush", e4m3fn, -std::nextafter(0x1p-6F, 0.0F)) == 0x80);
  CHECK(code("flush", e4m3fn, 0x1p-6F) == 0x08);
  CHECK(code("seed_toy", e4m3fn, 1e-30F) == 0x08);
  CHECK(code("seed_toy", e4m3fn, 250.0F) == 0x77);
  CHECK(code("seed_toy", e4m3fn, 232.0F) == 0x76);  // a tie goes down
  CHECK(code("seed_toy", e4m3fn, 0.0F) == 0x00);
}

TEST_CASE("scale formats have neither sign nor zero", "[cast]") {
  using enum FormatId;
  CHECK(code("nvidia_satfinite", e8m0fnu, 1.0F) == 127);
  CHECK(code("nvidia_satfinite", e8m0fnu, -2.0F) == 128);
  CHECK(code("nvidia_satfinite", e8m0fnu, 0.0F) == 0);
  CHECK(code("ml_dtypes", e8m0fnu, -2.0F) == 0xff);
  CHECK(code("ml_dtypes", e8m0fnu, 0.0F) == 0xff);
  CHECK(code("ml_dtypes", e8m0fnu, 1e-40F) == 0);
  CHECK(code("ml_dtypes", e8m0fnu, std::numeric_limits<float>::max()) == 0xff);
  CHECK(code("nvidia_satfinite", e8m0fnu, std::numeric_limits<float>::max()) == 0xfe);
}

TEST_CASE("what happened is told", "[cast]") {
  const Format& f = format(FormatId::e4m3fn);
  CHECK(cast(f, kNvidiaSatfinite, 464.0F).tie);
  CHECK_FALSE(cast(f, kNvidiaSatfinite, 1.0F).inexact);
  CHECK(cast(f, kNvidiaSatfinite, 1000.0F).overflowed);
  CHECK(cast(f, kNvidiaSatfinite, 0x1p-10F).underflowed);
  CHECK_FALSE(cast(f, kNvidiaSatfinite, 0.0F).underflowed);
  CHECK(cast(f, kNvidiaSatfinite, std::nextafter(0x1p-10F, 1.0F)).code == 1);
  CHECK(cast(f, kNvidiaNosat, 1000.0F).nan);
}

TEST_CASE("stochastic rounding goes up with the probability of the discarded part", "[cast]") {
  const Format& f = format(FormatId::e4m3fn);
  CastPolicy policy = kNvidiaSatfinite;
  policy.rounding = RoundingMode::stochastic;
  // 1 + 1/32 is a quarter of the way from 1 to 1.125.
  const std::uint32_t quarter = 0x40000000;
  CHECK(encode(f, policy, 1.03125F, ~quarter) == 0x38);
  CHECK(encode(f, policy, 1.03125F, ~quarter + 1) == 0x39);
  CHECK(encode(f, policy, 1.0F, 0xffffffff) == 0x38);
  const RandomStream stream(1, "stochastic");
  int up = 0;
  for (std::uint64_t i = 0; i < 100000; ++i)
    up += encode(f, policy, 1.03125F, stream.bits32(i)) == 0x39 ? 1 : 0;
  // 100000 draws with p = 1/4: five standard deviations are 685.
  CHECK(up > 25000 - 685);
  CHECK(up < 25000 + 685);
}

TEST_CASE("every code casts back to itself, in every format", "[cast]") {
  int codes = 0;
  for (const Format& f : kFormats) {
    if (f.code_bits() > 16) continue;
    for (std::uint32_t c = 0; c < std::uint32_t{1} << f.code_bits(); ++c) {
      const double value = decode(f, c);
      if (std::isnan(value)) continue;
      const std::uint32_t back = encode(f, kMlDtypes, static_cast<float>(value));
      ++codes;
      if (back != c) FAIL_CHECK(f.name << ": code " << c << " came back as " << back);
    }
  }
  CHECK(codes > 2 * 65536 - 4096);
}

TEST_CASE("unknown names list the known ones", "[cast]") {
  CHECK_THROWS_WITH(find_cast_profile("nvidia"), contains("nvidia_satfinite"));
  CHECK_THROWS_WITH(find_rounding_mode("up"), contains("nearest_even"));
  CHECK_THROWS_WITH(find_format("e4m4"), contains("e4m3fnuz") && contains("'e4m4'"));
}
