#include "fp8lab/scaling/scale_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::uint32_t kExponentMask = 0x7f800000;
constexpr std::uint32_t kMantissaMask = 0x007fffff;
constexpr std::uint8_t kE8m0Nan = 255;

constexpr std::array<std::string_view, 11> kNames{"unit",     "te",       "torchao",  "deepseek",
                                                  "deepgemm", "ms_amp",   "mx_floor", "mx_ceil",
                                                  "mx_even",  "mx_rceil", "te_mx"};

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// floor(log2 x) as frameworks compute it: log2 is rounded to binary32 first.
float floor_log2(float x) {
  return std::floor(static_cast<float>(std::log2(static_cast<double>(x))));
}

TileScale te_scale(const ScaleOptions& options, float max_finite, float amax) {
  if (amax < options.amax_floor) amax = options.amax_floor;
  float scale = 1.0F;
  if (std::isfinite(amax) && amax != 0.0F) {
    scale = max_finite / amax;
    if (std::isinf(scale)) scale = std::numeric_limits<float>::max();
    if (options.power_of_two) scale = float_of(bits_of(scale) & kExponentMask);
  }
  return {scale, 1.0F / scale, 0};
}

TileScale torchao_scale(const ScaleOptions& options, float max_finite, float amax) {
  const double wide = static_cast<double>(amax);
  const double floored = std::isnan(wide) ? wide : std::max(wide, 1e-12);
  auto scale = static_cast<float>(static_cast<double>(max_finite) / floored);
  if (options.power_of_two) scale = std::exp2(floor_log2(scale));
  return {scale, 1.0F / scale, 0};
}

TileScale deepgemm_scale(const ScaleOptions& options, float max_finite, float amax) {
  const float floored = std::isnan(amax) ? amax : std::max(amax, 1e-4F);
  float inverse = floored / max_finite;
  if (options.power_of_two) {
    const std::uint32_t bits = bits_of(inverse) & 0x7fffffff;
    const std::uint32_t up = (bits >> 23) + ((bits & kMantissaMask) != 0 ? 1 : 0);
    inverse = float_of(std::clamp<std::uint32_t>(up, 1, 254) << 23);
  }
  return {1.0F / inverse, inverse, 0};
}

TileScale ms_amp_scale(const ScaleOptions& options, float max_finite, float amax) {
  const float exponent = floor_log2(max_finite / amax);
  float scale = options.previous_scale;
  if (amax > 0.0F && std::isfinite(amax)) scale = std::exp2(std::abs(exponent));
  if (exponent < 0.0F) scale = 1.0F / scale;
  return {scale, 1.0F / scale, 0};
}

/// Biased exponent of `x` rounded up to a power of two, as an E8M0 code: code 0
/// is 2^-127, half of the smallest normal, hence the special case.
std::uint32_t e8m0_round_up(float x) {
  const std::uint32_t exponent = bits_of(x) >> 23;
  const std::uint32_t mantissa = bits_of(x) & kMantissaMask;
  const bool up = exponent == 0 ? mantissa > 0x00400000 : mantissa != 0;
  return exponent + (up ? 1 : 0);
}

inline std::uint8_t mx_code(ScaleRule rule, float max_finite, const Format& f, float amax) {
  if (rule == ScaleRule::mx_rceil || rule == ScaleRule::te_mx) {
    const float descale = amax * (1.0F / max_finite);
    if (std::isnan(descale)) return kE8m0Nan;
    if (std::isinf(descale)) return rule == ScaleRule::te_mx ? 254 : kE8m0Nan;
    return static_cast<std::uint8_t>(e8m0_round_up(descale));
  }
  std::uint32_t bits = bits_of(amax);
  if (std::isnan(amax)) return kE8m0Nan;
  if (rule == ScaleRule::mx_even)
    bits = (bits + (std::uint32_t{1} << (22 - f.mantissa_bits))) & kExponentMask;
  if ((bits & kExponentMask) == kExponentMask) return kE8m0Nan;
  int exponent = static_cast<int>(bits >> 23) - 127;
  if (rule == ScaleRule::mx_ceil && (bits & kMantissaMask) != 0) ++exponent;
  // The element format's largest power of two.
  const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  return static_cast<std::uint8_t>(std::max(exponent - element_exponent, -127) + 127);
}

/// 2^(code - 127), an E8M0 code's value; code 255 is NaN.
float e8m0_value(std::uint32_t code) {
  constexpr std::uint32_t kQuietNan = 0x7fc00000;
  constexpr std::uint32_t kSmallest = 0x00400000;  // 2^-127, a subnormal
  if (code == kE8m0Nan) return float_of(kQuietNan);
  return float_of(code == 0 ? kSmallest : code << 23);
}

inline TileScale mx_scale(ScaleRule rule, float max_finite, const Format& f, float amax) {
  const std::uint8_t code = mx_code(rule, max_finite, f, amax);
  TileScale result;
  result.e8m0 = code;
  result.inverse_scale = e8m0_value(code);
  if (rule == ScaleRule::te_mx)
    // One integer subtraction: 254 has no reciprocal left, and 0 is meant for empty tiles.
    result.scale = code == 0 ? 1.0F : float_of((std::uint32_t{254} - code) << 23);
  else
    result.scale = code == kE8m0Nan ? e8m0_value(code) : e8m0_value(std::uint32_t{254} - code);
  return result;
}

}  // namespace

std::string_view to_string(ScaleRule rule) { return kNames[static_cast<std::size_t>(rule)]; }

ScaleRule find_scale_rule(std::string_view name) {
  return find_enumerator<ScaleRule>(kNames, "rule", name);
}

TileScaler::TileScaler(const ScaleOptions& options)
    : options_(options),
      format_(&format(options.format)),
      max_finite_(static_cast<float>(options.max_magnitude > 0.0 ? options.max_magnitude
                                                                 : format_->max_finite())) {
  if (is_mx(options.rule))
    require(format_->id == FormatId::e4m3fn || format_->id == FormatId::e5m2, "format",
            "e4m3fn or e5m2", format_->name);
}

void TileScaler::operator()(std::span<const float> amaxes, std::span<TileScale> scales) const {
  if (amaxes.size() != scales.size())
    throw Error("scales", fmt::format("{}, as amaxes", amaxes.size()),
                fmt::format("{}", scales.size()));
  const auto each = [&](const auto& scale_of) {
    for (std::size_t i = 0; i < amaxes.size(); ++i) scales[i] = scale_of(amaxes[i]);
  };
  // A rule that the compiler knows is decided once and not tile by tile.
  const auto mx = [&](ScaleRule rule) {
    return [=, this](float amax) { return mx_scale(rule, max_finite_, *format_, amax); };
  };
  switch (options_.rule) {
    case ScaleRule::unit:
      return each([](float) { return TileScale{}; });
    case ScaleRule::te:
      return each([&](float amax) { return te_scale(options_, max_finite_, amax); });
    case ScaleRule::torchao:
      return each([&](float amax) { return torchao_scale(options_, max_finite_, amax); });
    case ScaleRule::deepseek:
      return each([&](float amax) {
        return TileScale{1.0F / (amax / max_finite_), amax / max_finite_, 0};
      });
    case ScaleRule::deepgemm:
      return each([&](float amax) { return deepgemm_scale(options_, max_finite_, amax); });
    case ScaleRule::ms_amp:
      return each([&](float amax) { return ms_amp_scale(options_, max_finite_, amax); });
    case ScaleRule::mx_floor:
      return each(mx(ScaleRule::mx_floor));
    case ScaleRule::mx_ceil:
      return each(mx(ScaleRule::mx_ceil));
    case ScaleRule::mx_even:
      return each(mx(ScaleRule::mx_even));
    case ScaleRule::mx_rceil:
      return each(mx(ScaleRule::mx_rceil));
    case ScaleRule::te_mx:
      return each(mx(ScaleRule::te_mx));
  }
}

TileScale tile_scale(const ScaleOptions& options, float amax) {
  TileScale scale;
  const TileScaler scaler(options);
  scaler(std::span(&amax, 1), std::span(&scale, 1));
  return scale;
}

bool amax_ignores_nan(ScaleRule rule) {
  return rule == ScaleRule::te || rule == ScaleRule::te_mx || rule == ScaleRule::deepseek ||
         rule == ScaleRule::unit;
}

float amax(std::span<const float> x, bool ignore_nan) {
  // Magnitudes order like their bits, with NaN above Inf; signed, because that
  // maximum has vector instructions on every target.
  constexpr auto kInfinity = static_cast<std::int32_t>(kExponentMask);
  std::int32_t largest = 0;
  if (ignore_nan) {
    for (const float value : x) {
      const auto magnitude = static_cast<std::int32_t>(bits_of(value) & 0x7fffffff);
      largest = std::max(largest, magnitude > kInfinity ? 0 : magnitude);
    }
  } else {
    for (const float value : x)
      largest = std::max(largest, static_cast<std::int32_t>(bits_of(value) & 0x7fffffff));
    if (largest > kInfinity) largest = 0x7fc00000;
  }
  return float_of(static_cast<std::uint32_t>(largest));
}

}  // namespace fp8lab
