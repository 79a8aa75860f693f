#include "fp8lab/metrics/ulp.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("ulp distance counts the numbers between two codes", "[metrics]") {
  for (const Format& f : kFormats) {
    if (f.code_bits() > 8) continue;
    CAPTURE(f.name);
    // Oracle: positions in the sorted list of distinct values.
    std::vector<double> values;
    const std::uint32_t codes = std::uint32_t{1} << f.code_bits();
    for (std::uint32_t code = 0; code < codes; ++code)
      if (!std::isnan(decode(f, code))) values.push_back(decode(f, code));
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    REQUIRE(values.size() > 1);
    const auto position = [&](std::uint32_t code) {
      return std::lower_bound(values.begin(), values.end(), decode(f, code)) - values.begin();
    };
    for (std::uint32_t a = 0; a < codes; ++a)
      for (std::uint32_t b = 0; b < codes; ++b) {
        const bool a_nan = std::isnan(decode(f, a));
        const bool b_nan = std::isnan(decode(f, b));
        std::uint64_t expected = a_nan && b_nan ? 0 : kNanDistance;
        if (!a_nan && !b_nan)
          expected = static_cast<std::uint64_t>(std::abs(position(a) - position(b)));
        if (ulp_distance(f, a, b) != expected) {
          CAPTURE(a, b);
          REQUIRE(ulp_distance(f, a, b) == expected);
        }
      }
  }
}

TEST_CASE("ulp distances ignore bits above a code's width", "[metrics]") {
  const Format& f = format(FormatId::e2m1);
  CHECK(ulp_distance(f, 0xf3, 0x03) == 0);
  CHECK(ulp_distance(f, 0xfb, 0x03) == 6);
  CHECK(ulp_distance(format(FormatId::e4m3fn), 0xf38, 0x138) == 0);
}

TEST_CASE("ulp distances fall into doubling bins", "[metrics]") {
  CHECK(UlpHistogram::bin_of(0) == 0);
  CHECK(UlpHistogram::bin_of(1) == 1);
  CHECK(UlpHistogram::bin_of(2) == 2);
  CHECK(UlpHistogram::bin_of(3) == 3);
  CHECK(UlpHistogram::bin_of(4) == 3);
  CHECK(UlpHistogram::bin_of(5) == 4);
  CHECK(UlpHistogram::bin_of(std::uint64_t{0xff000000}) == UlpHistogram::kBins - 1);
  for (std::size_t bin = 0; bin < UlpHistogram::kBins; ++bin)
    CHECK(UlpHistogram::bin_of(UlpHistogram::last_of(bin)) == bin);
}

TEST_CASE("a histogram of binary32 pairs knows direction and place", "[metrics]") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float above = std::nextafter(1.0F, 2.0F);
  const float below = std::nextafter(1.0F, 0.0F);
  const std::vector<float> reference{1.0F, 1.0F, -1.0F, -0.0F, kNaN, kNaN, kInf, 0x1p-149F};
  const std::vector<float> actual{
      1.0F, above, -below, 0.0F, -kNaN, 1.0F, std::numeric_limits<float>::max(), -0x1p-149F};
  const UlpHistogram h = ulp_histogram(reference, actual);
  CHECK(h.total == 8);
  CHECK(h.nan_mismatches == 1);
  CHECK(h.counts[0] == 3);
  CHECK(h.counts[1] == 3);
  CHECK(h.counts[2] == 1);
  CHECK(h.max_distance == 2);
  CHECK(h.max_index == 7);
  CHECK(h.toward_zero == 2);
  CHECK(h.away_from_zero == 1);
}

TEST_CASE("histograms want 8-bit codes and equal sizes", "[metrics]") {
  const std::vector<std::uint8_t> three{0x38, 0x38, 0x7f};
  const std::vector<std::uint8_t> other{0x38, 0xb8, 0xff};
  const UlpHistogram h = ulp_histogram(format(FormatId::e4m3fn), three, other);
  CHECK(h.counts[0] == 2);
  CHECK(h.max_distance == 0x70);
  CHECK_THROWS_WITH(ulp_histogram(format(FormatId::e4m3fn), three, {}),
                    contains("3 elements") && contains("got 0"));
  CHECK_THROWS_WITH(ulp_histogram(format(FormatId::f16), three, other), contains("8-bit"));
}
