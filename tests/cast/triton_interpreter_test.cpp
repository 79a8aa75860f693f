// The cast of Triton's interpreter, against codes that Triton 3.9.0 gave and against its rule in
// numbers.

#include "fp8lab/cast/triton_interpreter.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Codes of one number in E4M3, E5M2 and their FNUZ forms.
struct Recorded {
  float x;
  std::array<std::uint32_t, 4> codes;
};
constexpr std::array<FormatId, 4> kRecordedFormats{FormatId::e4m3fn, FormatId::e5m2,
                                                   FormatId::e4m3fnuz, FormatId::e5m2fnuz};
constexpr Recorded kRecorded[] = {
    {0.0F, {0x00, 0x00, 0x00, 0x00}},       {-0.0F, {0x80, 0x80, 0x00, 0x00}},
    {1.0F, {0x38, 0x3c, 0x40, 0x40}},       {127.0F, {0x68, 0x54, 0x78, 0x5c}},
    {-127.0F, {0xe8, 0xd4, 0xf8, 0xdc}},    {63.0F, {0x68, 0x54, 0x68, 0x54}},
    {252.0F, {0x78, 0x5c, 0x78, 0x5c}},     {3.97F, {0x48, 0x44, 0x48, 0x44}},
    {1.97F, {0x38, 0x3c, 0x48, 0x44}},      {31.5F, {0x58, 0x4c, 0x68, 0x54}},
    {1.0625F, {0x39, 0x3c, 0x41, 0x40}},    {448.0F, {0x7e, 0x5f, 0x7e, 0x63}},
    {464.0F, {0x7f, 0x5f, 0x7f, 0x63}},     {480.0F, {0x7f, 0x5c, 0x7f, 0x64}},
    {500.0F, {0x78, 0x5c, 0x78, 0x64}},     {1000.0F, {0x78, 0x64, 0x78, 0x64}},
    {70000.0F, {0x79, 0x7c, 0x79, 0x7c}},   {kInfinity, {0x78, 0x7c, 0x78, 0x7c}},
    {-kInfinity, {0xf8, 0xfc, 0xf8, 0xfc}}, {kNan, {0x7c, 0x7e, 0x7c, 0x7e}},
    {0x1p-6F, {0x08, 0x24, 0x10, 0x28}},    {0.0155F, {0x04, 0x24, 0x08, 0x24}},
    {0x1p-9F, {0x01, 0x18, 0x02, 0x1c}},    {0x1p-10F, {0x00, 0x14, 0x01, 0x18}},
    {0.0019F, {0x00, 0x14, 0x01, 0x1c}},    {0.003F, {0x01, 0x1a, 0x03, 0x1e}},
    {0.0058F, {0x03, 0x1e, 0x06, 0x22}},    {1e-5F, {0x00, 0x00, 0x00, 0x01}},
    {1e-40F, {0x01, 0x00, 0x01, 0x00}},     {61440.0F, {0x7f, 0x7c, 0x7f, 0x7c}},
    {0.3F, {0x2a, 0x35, 0x32, 0x39}},       {-0.7F, {0xb3, 0xba, 0xbb, 0xbe}},
    {248.0F, {0x78, 0x5c, 0x78, 0x5c}},     {17.0F, {0x59, 0x4c, 0x61, 0x50}},
};

}  // namespace

TEST_CASE("triton interpreter: the codes that it gave", "[cast]") {
  for (const Recorded& one : kRecorded)
    for (std::size_t i = 0; i < kRecordedFormats.size(); ++i) {
      const Format& f = format(kRecordedFormats[i]);
      const std::uint32_t got = triton_interpreter_code(f, one.x);
      INFO(one.x << " to " << f.name << ": expected " << one.codes[i] << ", got " << got);
      CHECK(got == one.codes[i]);
    }
}

TEST_CASE("triton interpreter: between the smallest normal number and the largest binade",
          "[cast]") {
  const RandomStream stream(5, "triton");
  int halved = 0;
  for (const FormatId id : kRecordedFormats) {
    const Format& f = format(id);
    // A carry stays below the last field, in which some codes are no numbers.
    const int last = (1 << f.exponent_bits) - 3 - f.bias;
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const int exponent =
          f.min_exponent() + static_cast<int>(stream.below(
                                 2 * i, static_cast<std::uint64_t>(last - f.min_exponent() + 1)));
      const double x = std::ldexp(1.0 + stream.uniform(2 * i + 1), exponent);
      const auto number = static_cast<float>(x);
      const double unit = std::ldexp(1.0, std::ilogb(number) - f.mantissa_bits);
      const double rounded = std::floor(static_cast<double>(number) / unit + 0.5) * unit;
      const bool carries = rounded == std::ldexp(1.0, std::ilogb(number) + 1);
      const bool odd_field = (std::ilogb(number) + f.bias) % 2 != 0;
      const double expected = carries && odd_field ? rounded / 2.0 : rounded;
      if (std::ilogb(number) > last) continue;
      const double got = decode(f, triton_interpreter_code(f, number));
      INFO(number << " to " << f.name << ": expected " << expected << ", got " << got);
      CHECK(got == expected);
      halved += carries && odd_field ? 1 : 0;
      const double right = decode(f, encode(f, kNvidiaSatfinite, number));
      CHECK((got == right || got == right / 2.0));
    }
  }
  CHECK(halved > 1000);
}

TEST_CASE("triton interpreter: other formats have no such cast", "[cast]") {
  CHECK_FALSE(is_cast_of_triton_interpreter(FormatId::bf16));
  CHECK_THROWS_AS(triton_interpreter_code(format(FormatId::e2m1), 1.0F), Error);
}
