#include "training/collectives/wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "skip.hpp"

// CUDA's headers are not ours to warn about.
#if __has_include(<cuda_fp8.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#pragma GCC diagnostic pop
#endif

using namespace fp8lab;

namespace {

const WireFormat& wire(std::string_view name) { return find_wire_format(name); }

/// The finite code whose value is nearest to `x`, ties to the even code; max
/// finite for what is larger. By search, with no rounding code of the library.
std::uint32_t nearest_code(const Format& f, double x) {
  const double magnitude = std::fabs(x);
  std::uint32_t low = 0;
  std::uint32_t high = f.max_finite_code();
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (decode(f, middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - decode(f, low);
  const double above = decode(f, high) - magnitude;
  const bool up = above < below || (above == below && high % 2 == 0);
  return (up ? high : low) | (x < 0.0 ? f.sign_mask() : 0U);
}

/// Rounded to FP16 by FP64 arithmetic: multiples of 2^-24 below 2^-14.
double to_half(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 11, -24);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  return std::fabs(rounded) > 65504.0 ? std::copysign(INFINITY, x) : rounded;
}

std::vector<std::byte> bytes_of(const WireFormat& w, const std::vector<std::uint32_t>& codes) {
  std::vector<std::byte> bytes(codes.size() * w.bytes);
  for (std::size_t i = 0; i < codes.size(); ++i)
    std::memcpy(&bytes[i * w.bytes], &codes[i], w.bytes);
  return bytes;
}

std::uint32_t code_at(const WireFormat& w, const std::vector<std::byte>& bytes, std::size_t i) {
  std::uint32_t code = 0;
  std::memcpy(&code, &bytes[i * w.bytes], w.bytes);
  return code;
}

/// Random codes and the special ones; every fourth pair lies close together, so
/// that sums cancel and tie.
struct Pairs {
  std::vector<std::uint32_t> a;
  std::vector<std::uint32_t> b;
};

Pairs pairs_of(const WireFormat& w, std::size_t count) {
  const Format& f = format(w.format);
  const RandomStream random(5, w.name);
  const std::uint32_t all = f.magnitude_mask() | f.sign_mask();
  Pairs pairs;
  const std::vector<std::uint32_t> special{0,
                                           f.sign_mask(),
                                           1,
                                           f.sign_mask() | 1,
                                           f.max_finite_code(),
                                           f.max_finite_code() | f.sign_mask(),
                                           f.infinity_code(),
                                           f.infinity_code() | f.sign_mask(),
                                           f.magnitude_mask(),
                                           all,
                                           f.infinity_code() | 1};
  for (const std::uint32_t x : special)
    for (const std::uint32_t y : special) {
      pairs.a.push_back(x);
      pairs.b.push_back(y);
    }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t x = random.bits32(2 * i) & all;
    std::uint32_t y = random.bits32(2 * i + 1);
    const std::uint32_t binade = std::uint32_t{1} << f.mantissa_bits;
    if (i % 4 == 0) y = (x ^ f.sign_mask()) + (y & (4 * binade - 1)) - 2 * binade;
    pairs.a.push_back(x);
    pairs.b.push_back(y & all);
  }
  return pairs;
}

}  // namespace

TEST_CASE("FP8 wires add in FP16 and round again, all pairs of codes",
          "[collectives][cuda-header]") {
  for (const char* name : {"e4m3fn", "e5m2"}) {
    const WireFormat& w = wire(name);
    const Format& f = format(w.format);
    std::size_t through_half_differs = 0;
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b < 256; ++b) {
        const double x = decode(f, a);
        const double y = decode(f, b);
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        const double sum = to_half(x + y);
        std::uint32_t expected = nearest_code(f, sum);
        if (x + y == 0.0) expected = std::signbit(x) && std::signbit(y) ? f.sign_mask() : 0U;
        const CastResult got = add_codes(w, a, b);
        if (nearest_code(f, x + y) != nearest_code(f, sum)) ++through_half_differs;
        const double limit =
            (f.max_finite() + 2.0 * f.max_finite() - decode(f, f.max_finite_code() - 1)) / 2.0;
        const bool overflows =
            std::fabs(x + y) > limit || (std::fabs(x + y) == limit && f.max_finite_code() % 2 == 1);
        if (got.code == expected && got.overflowed == overflows) continue;
        INFO(fmt::format(
            "{} {:#04x} + {:#04x} = {} + {}: expected {:#04x} overflowed {}, got {:#04x} {}", name,
            a, b, x, y, expected, overflows, got.code, got.overflowed));
        REQUIRE((got.code == expected && got.overflowed == overflows));
      }
    // FP16 holds whatever FP8 needs to round once.
    CHECK(through_half_differs == 0);
  }
}

TEST_CASE("special values at a hop", "[collectives]") {
  const auto sum = [](const char* name, std::uint32_t a, std::uint32_t b) {
    const CastResult one = add_codes(wire(name), a, b);
    CHECK(one.code == add_codes(wire(name), b, a).code);
    return one.code;
  };
  CHECK(sum("e4m3fn", 0x7f, 0x00) == 0x7f);
  CHECK(sum("e4m3fn", 0xff, 0x38) == 0x7f);  // the sign of a NaN is lost
  CHECK(sum("e4m3fn", 0x7e, 0x7e) == 0x7e);
  CHECK(sum("e4m3fn", 0x80, 0x80) == 0x80);
  CHECK(sum("e4m3fn", 0x80, 0x00) == 0x00);
  CHECK(sum("e4m3fn", 0x38, 0xb8) == 0x00);
  CHECK(sum("e4m3fn", 0x01, 0x01) == 0x02);
  CHECK(sum("e5m2", 0x7c, 0x38) == 0x7b);  // an infinity saturates and is gone
  CHECK(sum("e5m2", 0xfc, 0x7b) == 0xfb);
  CHECK(sum("e5m2", 0x7c, 0xfc) == 0x7f);
  CHECK(sum("f16", 0x7bff, 0x7bff) == 0x7c00);
  CHECK(sum("f16", 0x7c00, 0xfc00) == 0x7fff);
  CHECK(sum("f16", 0xfe01, 0x3c00) == 0x7fff);
  CHECK(sum("bf16", 0x7f80, 0xc000) == 0x7f80);
  CHECK(sum("f32", 0xffc12345, 0x3f800000) == 0x7fffffff);
  CHECK(sum("f32", 0x7f7fffff, 0x7f7fffff) == 0x7f800000);
  CHECK(sum("f32", 0x00000001, 0x00000001) == 0x00000002);
}

TEST_CASE("wide wires add as one rounding of the exact sum", "[collectives]") {
  for (const char* name : {"f16", "bf16", "f32"}) {
    const WireFormat& w = wire(name);
    const Format& f = format(w.format);
    const Pairs pairs = pairs_of(w, 200'000);
    std::vector<std::byte> sum = bytes_of(w, pairs.a);
    const std::uint64_t counted = add_on_wire(w, bytes_of(w, pairs.b), sum);
    std::uint64_t overflowed = 0;
    for (std::size_t i = 0; i < pairs.a.size(); ++i) {
      const CastResult reference = add_codes(w, pairs.a[i], pairs.b[i]);
      overflowed += reference.overflowed ? 1 : 0;
      INFO(fmt::format("{} {:#x} + {:#x}", name, pairs.a[i], pairs.b[i]));
      REQUIRE(fmt::format("{:#x}", code_at(w, sum, i)) == fmt::format("{:#x}", reference.code));
      // A sum of two such values rounds the same through binary64: 53 >= 2 * 24 + 2.
      const double exact = decode(f, pairs.a[i]) + decode(f, pairs.b[i]);
      if (!std::isfinite(exact)) continue;
      const float once = static_cast<float>(exact);
      const std::uint32_t oracle =
          w.bytes == 4 ? std::bit_cast<std::uint32_t>(once) : encode(f, kNvidiaNosat, once);
      REQUIRE(fmt::format("{:#x}", reference.code) == fmt::format("{:#x}", oracle));
    }
    CHECK(counted == overflowed);
    CHECK(overflowed > 0);
  }
}

TEST_CASE("spans of FP8 add as the reference does and count overflow", "[collectives]") {
  for (const char* name : {"e4m3fn", "e5m2"}) {
    const WireFormat& w = wire(name);
    const Pairs pairs = pairs_of(w, 5000);
    std::vector<std::byte> sum = bytes_of(w, pairs.a);
    const std::uint64_t counted = add_on_wire(w, bytes_of(w, pairs.b), sum);
    std::uint64_t overflowed = 0;
    for (std::size_t i = 0; i < pairs.a.size(); ++i) {
      const CastResult reference = add_codes(w, pairs.a[i], pairs.b[i]);
      overflowed += reference.overflowed ? 1 : 0;
      INFO(fmt::format("{} {:#x} + {:#x}", name, pairs.a[i], pairs.b[i]));
      REQUIRE(code_at(w, sum, i) == reference.code);
    }
    CHECK(counted == overflowed);
    CHECK(overflowed > 0);
  }
}

TEST_CASE("onto the wire and back", "[collectives]") {
  const std::vector<float> x{0.0F, -0.0F, 1.0F, -3.3F, 1e-6F, 500.0F, INFINITY, NAN, 1e38F};
  for (const WireFormat& w : kWireFormats) {
    INFO(w.name);
    std::vector<std::byte> codes(x.size() * w.bytes);
    const WireCounts counts = to_wire(w, x, 2.0F, codes);
    std::vector<float> back(x.size());
    from_wire(w, codes, 0.5F, back);
    WireCounts expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const CastResult cast = fp8lab::cast(format(w.format), w.policy, x[i] * 2.0F);
      expected.overflowed += cast.overflowed ? 1 : 0;
      expected.underflowed += cast.underflowed ? 1 : 0;
      INFO(i);
      CHECK(code_at(w, codes, i) == cast.code);
      const auto value = static_cast<float>(decode(format(w.format), cast.code));
      CHECK((std::isnan(value) ? std::isnan(back[i]) : back[i] == value * 0.5F));
    }
    CHECK(counts.overflowed == expected.overflowed);
    CHECK(counts.underflowed == expected.underflowed);
  }
}

TEST_CASE("wires: bad arguments are named", "[collectives]") {
  CHECK_THROWS_WITH(find_wire_format("e2m1"), contains("wire: expected one of e4m3fn"));
  CHECK_THROWS_WITH(find_wire_format("e9m9"), contains("'e9m9'"));
  CHECK(find_wire_format("fp16").format == FormatId::f16);
  std::vector<std::byte> two(2);
  std::vector<std::byte> three(3);
  CHECK_THROWS_WITH(add_on_wire(wire("e4m3fn"), two, three), contains("term: expected 3 bytes"));
  CHECK_THROWS_WITH(add_on_wire(wire("f16"), three, three), contains("3"));
  CHECK_THROWS_WITH(to_wire(wire("f16"), std::vector<float>(1), 0.0F, two), contains("scale"));
  CHECK_THROWS_WITH(to_wire(wire("f16"), std::vector<float>(2), 1.0F, two), contains("out"));
  std::vector<float> one(1);
  CHECK_THROWS_WITH(from_wire(wire("f16"), two, NAN, one), contains("inverse_scale"));
}

TEST_CASE("what a binary32 wire cannot hold is counted, of either sign", "[collectives]") {
  const std::vector<float> x{1e-30F, -1e-30F, 0.0F, -0.0F, 1.0F, -1e30F, INFINITY, NAN};
  std::vector<std::byte> out(4 * x.size());
  WireCounts counts = to_wire(wire("f32"), x, 0x1p-120F, out);
  CHECK(counts.underflowed == 2);
  CHECK(counts.overflowed == 1);  // infinity itself
  CHECK(code_at(wire("f32"), out, 1) == 0x80000000);
  CHECK(code_at(wire("f32"), out, 7) == 0x7fffffff);
  counts = to_wire(wire("f32"), x, 0x1p120F, out);
  CHECK(counts.underflowed == 0);
  CHECK(counts.overflowed == 2);
  CHECK(code_at(wire("f32"), out, 5) == 0xff800000);
}

TEST_CASE("a hop of values that are not finite overflows nothing", "[collectives]") {
  const std::vector<std::tuple<const char*, std::uint32_t, std::uint32_t>> pairs{
      {"e4m3fn", 0x7f, 0x7e},
      {"e5m2", 0x7c, 0x7b},
      {"e5m2", 0xfc, 0x3c},
      {"e5m2", 0x7c, 0xfc},
      {"f16", 0x7c00, 0x7bff},
      {"bf16", 0xff80, 0x3f80},
      {"f32", 0x7f800000, 0x7f7fffff},
      {"f32", 0x7fc00000, 0x3f800000}};
  for (const auto& [name, a, b] : pairs) {
    INFO(name << " " << a << " + " << b);
    CHECK_FALSE(add_codes(wire(name), a, b).overflowed);
    CHECK_FALSE(add_codes(wire(name), b, a).overflowed);
    std::vector<std::byte> sum = bytes_of(wire(name), {a, b});
    CHECK(add_on_wire(wire(name), bytes_of(wire(name), {b, a}), sum) == 0);
  }
  CHECK(add_codes(wire("e5m2"), 0x7b, 0x7b).overflowed);
}

#if __has_include(<cuda_fp8.h>)
// The expression of NCCL's reduce_kernel.h, as CUDA's own headers evaluate it.
TEST_CASE("an FP8 hop is NCCL's, all pairs of codes", "[collectives][cuda-header]") {
  const auto check = [](const char* name, auto type) {
    using Fp8 = decltype(type);
    int pairs = 0;
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b < 256; ++b) {
        Fp8 x;
        Fp8 y;
        x.__x = static_cast<__nv_fp8_storage_t>(a);
        y.__x = static_cast<__nv_fp8_storage_t>(b);
        const std::uint32_t expected = Fp8(__hadd(__half(x), __half(y))).__x;
        const std::uint32_t got = add_codes(wire(name), a, b).code;
        ++pairs;
        if (got == expected) continue;
        INFO(fmt::format("{} {:#04x} + {:#04x}: expected {:#04x}, got {:#04x}", name, a, b,
                         expected, got));
        REQUIRE(got == expected);
      }
    CHECK(pairs == 256 * 256);
  };
  check("e4m3fn", __nv_fp8_e4m3{});
  check("e5m2", __nv_fp8_e5m2{});
}
#else
TEST_CASE("an FP8 hop is NCCL's, all pairs of codes", "[collectives][cuda-header]") {
  skip_test("cuda_fp8.h was not found when this test was compiled");
}
#endif
