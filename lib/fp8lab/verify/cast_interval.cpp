#include "fp8lab/verify/cast_interval.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab {
namespace {

/// A binary32 number not above (below) `x`.
float outward(double x, bool up) {
  const auto rounded = static_cast<float>(x);
  constexpr float kEnd = std::numeric_limits<float>::infinity();
  if (up) return static_cast<double>(rounded) < x ? std::nextafter(rounded, kEnd) : rounded;
  return static_cast<double>(rounded) > x ? std::nextafter(rounded, -kEnd) : rounded;
}

std::uint32_t cast_one(const OutputCast& output, float x) {
  if (output.format == FormatId::f32) return std::bit_cast<std::uint32_t>(x);
  return encode(format(output.format), output.policy, x);
}

}  // namespace

CastInterval cast_interval(const OutputCast& output, double low, double high) {
  return {cast_one(output, outward(low, false)), cast_one(output, outward(high, true))};
}

bool lies_in(const CastInterval& interval, FormatId id, std::uint32_t code) {
  const Format& f = format(id);
  const double x = decode(f, code);
  const double low = decode(f, interval.low);
  const double high = decode(f, interval.high);
  if (std::isnan(x)) return std::isnan(low) || std::isnan(high);
  return !(x < low) && !(x > high);
}

}  // namespace fp8lab
