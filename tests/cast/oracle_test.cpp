// Every midpoint between neighbouring codes, every code, and one binary32 ulp to
// either side, for every format and rounding mode, against an oracle that picks
// the code from the table of decoded values in exact rational arithmetic.

#include <fmt/format.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <map>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using boost::multiprecision::cpp_int;
using boost::multiprecision::cpp_rational;

namespace {

cpp_rational exactly(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  cpp_rational value(static_cast<std::int64_t>(std::ldexp(fraction, 53)));
  const int shift = exponent - 53;
  const cpp_int power = cpp_int(1) << std::abs(shift);
  if (shift >= 0) return value * power;
  return value / power;
}

/// Magnitudes of a format in ascending order, with one more grid point past the
/// largest finite one, as rounding to an unbounded exponent needs.
struct Grid {
  explicit Grid(const Format& f) {
    const std::uint32_t last = f.max_finite_code();
    for (std::uint32_t code = 0; code <= last; ++code) points.push_back(exactly(decode(f, code)));
    const int top = std::ilogb(f.max_finite());
    const cpp_rational ulp = exactly(std::ldexp(1.0, top - f.mantissa_bits));
    points.push_back(points.back() + ulp);
  }
  std::vector<cpp_rational> points;  ///< index = magnitude code
};

/// The magnitude code that `mode` asks for; the last index means overflow.
std::size_t expected_code(const Format& f, const Grid& grid, const cpp_rational& x, bool negative,
                          RoundingMode mode) {
  const auto above = std::lower_bound(grid.points.begin(), grid.points.end(), x);
  const auto high = static_cast<std::size_t>(above - grid.points.begin());
  if (high >= grid.points.size()) return grid.points.size() - 1;
  if (grid.points[high] == x || high == 0) return high;
  const std::size_t low = high - 1;
  const cpp_rational to_low = x - grid.points[low];
  const cpp_rational to_high = grid.points[high] - x;
  switch (mode) {
    case RoundingMode::toward_zero:
      return low;
    case RoundingMode::upward:
      return negative ? low : high;
    case RoundingMode::downward:
      return negative ? high : low;
    default:
      break;
  }
  if (to_low != to_high) return to_low < to_high ? low : high;
  if (mode == RoundingMode::nearest_away) return high;
  if (mode == RoundingMode::nearest_toward_zero) return low;
  // Without mantissa bits every significand is the odd 1: ties go up, as in ml_dtypes.
  return low % 2 == 0 && f.mantissa_bits > 0 ? low : high;
}

void check_value(const Format& f, const Grid& grid, float x, RoundingMode mode, int& failures) {
  if (f.is_scale_only() && (x <= 0.0F || static_cast<double>(x) < f.min_normal())) return;
  const bool negative = std::signbit(x);
  const std::size_t expected = expected_code(f, grid, exactly(std::fabs(x)), negative, mode);
  const bool overflow = expected + 1 == grid.points.size();
  for (const CastPolicy& base : {kNvidiaSatfinite, kMlDtypes}) {
    CastPolicy policy = base;
    policy.rounding = mode;
    const CastResult got = cast(f, policy, x);
    auto magnitude = static_cast<std::uint32_t>(expected);
    if (overflow && policy.overflow == OverflowPolicy::saturate) magnitude = f.max_finite_code();
    if (overflow && policy.overflow == OverflowPolicy::non_saturating) {
      if (f.has_infinity())
        magnitude = f.infinity_code();
      else if (f.specials == SpecialValues::nan_only)
        magnitude = f.magnitude_mask();
      else
        magnitude = f.max_finite_code();
    }
    std::uint32_t code = magnitude | (negative ? f.sign_mask() : 0);
    if (f.specials == SpecialValues::fnuz) {
      if (magnitude == 0) code = 0;
      if (overflow && policy.overflow == OverflowPolicy::non_saturating) code = f.sign_mask();
    }
    if (got.code != code && ++failures <= 20)
      UNSCOPED_INFO(fmt::format("{} {} {:a}: expected 0x{:x}, got 0x{:x}", f.name, to_string(mode),
                                x, code, got.code));
  }
}

/// Around the codes that `takes` names: itself, and the midpoint above it.
template <typename Takes>
void check_format(const Format& f, const Takes& takes) {
  const Grid grid(f);
  int failures = 0;
  const auto check_around = [&](double center) {
    const auto nearest = static_cast<float>(center);
    for (const float x :
         {std::nextafter(nearest, 0.0F), nearest, std::nextafter(nearest, HUGE_VALF)}) {
      if (std::isinf(x)) continue;
      for (const RoundingMode mode : {RoundingMode::nearest_even, RoundingMode::nearest_away,
                                      RoundingMode::nearest_toward_zero, RoundingMode::toward_zero,
                                      RoundingMode::upward, RoundingMode::downward})
        for (const float signed_x : {x, -x}) check_value(f, grid, signed_x, mode, failures);
    }
  };
  for (std::uint32_t code = 0; code <= f.max_finite_code(); ++code) {
    if (!takes(code)) continue;
    const double here = decode(f, code);
    check_around(here);
    if (code < f.max_finite_code()) check_around((here + decode(f, code + 1)) / 2.0);
  }
  const double ulp = std::ldexp(1.0, std::ilogb(f.max_finite()) - f.mantissa_bits);
  for (const double x : {f.max_finite() + ulp / 2, f.max_finite() + ulp, f.max_finite() * 2})
    check_around(x);
  CHECK(failures == 0);
}

}  // namespace

TEST_CASE("casts around every code and midpoint match exact rational arithmetic", "[cast]") {
  for (const Format& f : kFormats) {
    if (f.code_bits() > 8) continue;
    DYNAMIC_SECTION(std::string(f.name)) {
      check_format(f, [](std::uint32_t) { return true; });
    }
  }
}

TEST_CASE("casts to 16-bit formats match exact rational arithmetic", "[cast][slow]") {
  const SweepShare share;
  for (const FormatId id : {FormatId::f16, FormatId::bf16})
    DYNAMIC_SECTION(std::string(format(id).name)) {
      const std::uint32_t mantissa_mask = (1U << format(id).mantissa_bits) - 1;
      check_format(format(id), [&](std::uint32_t code) {
        const std::uint32_t mantissa = code & mantissa_mask;
        return mantissa == 0 || mantissa == mantissa_mask ||
               share.takes_one_in(16, "codes of 16 bits", code);
      });
    }
}
