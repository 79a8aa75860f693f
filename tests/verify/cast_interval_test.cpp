#include "fp8lab/verify/cast_interval.hpp"

#include <bit>
#include <cmath>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/causes.hpp"

using namespace fp8lab;

TEST_CASE("intervals of codes: ends are rounded outward, never to nearest", "[verify]") {
  const RandomStream stream(3, "cast interval");
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const double middle = std::ldexp(stream.normal(2 * i), static_cast<int>(i % 80) - 40);
    const double low = middle;
    const double high = middle + std::abs(middle) * stream.uniform(2 * i + 1) * 1e-3;
    const CastInterval interval = cast_interval(default_output(FormatId::f32), low, high);
    const float bottom = std::bit_cast<float>(interval.low);
    const float top = std::bit_cast<float>(interval.high);
    CAPTURE(i, low, high, bottom, top);
    // The nearest numbers of binary32 that are not inside.
    REQUIRE(static_cast<double>(bottom) <= low);
    REQUIRE(static_cast<double>(std::nextafter(bottom, INFINITY)) > low);
    REQUIRE(static_cast<double>(top) >= high);
    REQUIRE(static_cast<double>(std::nextafter(top, -INFINITY)) < high);
    for (const FormatId id : {FormatId::bf16, FormatId::f16, FormatId::e4m3fn, FormatId::e5m2}) {
      const OutputCast output = default_output(id);
      const CastInterval narrow = cast_interval(output, low, high);
      REQUIRE(narrow.low == encode(format(id), output.policy, bottom));
      REQUIRE(narrow.high == encode(format(id), output.policy, top));
    }
  }
}

TEST_CASE("intervals of codes: both ends are inside, a NaN only where an end is one", "[verify]") {
  const auto inside = [](std::uint32_t low, std::uint32_t high, std::uint32_t code) {
    return lies_in({low, high}, FormatId::e4m3fn, code);
  };
  CHECK(inside(0x38, 0x3a, 0x38));
  CHECK(inside(0x38, 0x3a, 0x39));
  CHECK(inside(0x38, 0x3a, 0x3a));
  CHECK_FALSE(inside(0x38, 0x3a, 0x37));
  CHECK_FALSE(inside(0x38, 0x3a, 0x3b));
  CHECK_FALSE(inside(0x38, 0x3a, 0xb9));
  CHECK(inside(0xba, 0xb8, 0xb9));
  CHECK_FALSE(inside(0xb8, 0xba, 0xb9));
  CHECK(inside(0x00, 0x08, 0x80));  // zeros of both signs are one number
  CHECK(inside(0x88, 0x80, 0x00));
  CHECK_FALSE(inside(0x38, 0x3a, 0x7f));
  CHECK(inside(0x38, 0x7f, 0x7f));
  CHECK(inside(0xff, 0x3a, 0x7f));
  CHECK(inside(0x38, 0x7f, 0x7e));
  CHECK_FALSE(inside(0x38, 0x7f, 0x37));
  CHECK(inside(0xff, 0x3a, 0xfe));
  CHECK_FALSE(inside(0xff, 0x3a, 0x3b));
}

TEST_CASE("diagnosis of a cast: every wrong use of the scale is told apart", "[verify]") {
  // A scale that is no power of two: its inverse is rounded.
  const float scale = 1.0F / 3.0F;
  const CastSpec spec{};
  std::vector<float> x;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    // Near the middles between codes, where one more rounding shows.
    const float code = std::ldexp(1.0F + static_cast<float>(2 * (i % 8) + 1) / 16.0F,
                                  static_cast<int>(i / 8 % 12) - 6);
    x.push_back(std::nextafter(code / scale, i % 3 == 0 ? 1e9F : i % 3 == 1 ? 0.0F : code / scale));
  }
  const auto first_cause = [&](const auto& value) {
    std::vector<std::byte> got;
    for (const float one : x)
      got.push_back(static_cast<std::byte>(encode(format(spec.format), spec.policy, value(one))));
    const Diagnosis diagnosis = diagnose_cast(spec, x, std::span(&scale, 1), got);
    return diagnosis.mismatches == 0  ? std::string("right")
           : diagnosis.causes.empty() ? std::string("none")
                                      : diagnosis.causes.front().name;
  };
  CHECK(first_cause([&](float v) { return v * scale; }) == "right");
  CHECK(first_cause([&](float v) { return v * scale * scale; }) == "doubled_scale");
  CHECK(first_cause([&](float v) { return v / scale; }) == "inverted_scale");
  CHECK(first_cause([&](float v) { return v / (1.0F / scale); }) == "divided_by_the_inverse");
}
