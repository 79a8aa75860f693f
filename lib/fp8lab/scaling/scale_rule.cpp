#include "fp8lab/scaling/scale_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/scaling/mx_rules.hpp"

namespace fp8lab {
namespace {

using namespace scaling_detail;

constexpr auto kNames = [] {
  std::array<std::string_view, kScaleRules.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kScaleRules[i].name;
  return names;
}();

/// The element formats of OCP's microscaling types.
constexpr std::array kMxElements{FormatId::e4m3fn, FormatId::e5m2, FormatId::e2m3, FormatId::e3m2,
                                 FormatId::e2m1};

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
  const double least = std::max(1e-12, static_cast<double>(options.amax_floor));
  const double floored = std::isnan(wide) ? wide : std::max(wide, least);
  auto scale = static_cast<float>(static_cast<double>(max_finite) / floored);
  if (options.power_of_two) scale = std::exp2(floor_log2(scale));
  return {scale, 1.0F / scale, 0};
}

/// The amax, but not less than `least`; a NaN stays.
float at_least(float least, float amax) { return amax < least ? least : amax; }

TileScale deepseek_scale(const ScaleOptions& options, float max_finite, float amax) {
  const float inverse = at_least(options.amax_floor, amax) / max_finite;
  return {1.0F / inverse, inverse, 0};
}

TileScale deepgemm_scale(const ScaleOptions& options, float max_finite, float amax) {
  float inverse = at_least(std::max(1e-4F, options.amax_floor), amax) / max_finite;
  if (options.power_of_two)
    inverse = float_of(std::clamp<std::uint32_t>(exponent_above(inverse), 1, 254) << 23);
  return {1.0F / inverse, inverse, 0};
}

/// PyTorch divides a number by a tensor as the tensor's reciprocal times the number.
float python_quotient(float number, float tensor) { return 1.0F / tensor * number; }

TileScale deepgemm_first_scale(float max_finite, float amax) {
  const float floored = at_least(1e-4F, amax);
  return {python_quotient(max_finite, floored), floored / max_finite, 0};
}

TileScale modelopt_scale(float max_finite, float amax) {
  const float scale = python_quotient(max_finite, amax <= 0x1p-24F ? 1.0F : amax);
  return {scale, 1.0F / scale, 0};
}

TileScale vllm_group_scale(const ScaleOptions& options, float max_finite, float amax) {
  float inverse = at_least(1e-10F, amax) / max_finite;
  if (options.power_of_two) inverse = float_of(exponent_above(std::max(inverse, 1e-10F)) << 23);
  return {1.0F / inverse, inverse, 0};
}

TileScale vllm_token_scale(float max_finite, float amax) {
  const float inverse = at_least(1.0F / (max_finite * 512.0F), amax / max_finite);
  return {1.0F / inverse, inverse, 0};
}

/// The rules that serve models in the type of their tensor.
TileScale quotient_scale(ScaleRule rule, float max_finite, float amax) {
  const bool bf16 = has_bf16_scale(rule);
  if (rule == ScaleRule::quotient_or_one) {
    // ModelOpt's exporter: amaxes that never were seen count as M.
    constexpr float kLeast = std::numeric_limits<float>::min();
    if (amax == 0.0F || std::isnan(amax)) amax = max_finite;
    amax = std::clamp(amax, kLeast, std::numeric_limits<float>::max());
  }
  float inverse = bf16 ? rounded_to_bf16(rounded_to_bf16(amax) / max_finite) : amax / max_finite;
  if (rule == ScaleRule::quotient_eps || rule == ScaleRule::quotient_eps_bf16)
    if (inverse == 0.0F) inverse = bf16 ? 0x1p-7F : 0x1p-23F;
  return {1.0F / inverse, inverse, 0};
}

TileScale deepseek_ue8m0_scale(const ScaleOptions& options, float max_finite, float amax) {
  const float wanted = at_least(options.amax_floor, amax) * (1.0F / max_finite);
  const float inverse = float_of(std::min<std::uint32_t>(exponent_above(wanted), 255) << 23);
  return {1.0F / inverse, inverse, 0};
}

TileScale flax_scale(ScaleRule rule, float max_finite, float amax) {
  const float scale = amax > 0.0F && std::isfinite(amax) ? max_finite / amax : 1.0F;
  const float inverse = 1.0F / scale;
  return {scale, has_bf16_scale(rule) ? rounded_to_bf16(inverse) : inverse, 0};
}

/// XLA compiles qwix's division by a constant to a product with its reciprocal, unless the tensor
/// has a single row. In BF16 both have the same rounded quotient.
TileScale qwix_scale(ScaleRule rule, float max_finite, float amax) {
  constexpr float kLeast = 0x1p-63F;  // the root of the smallest normal number of either type
  const bool bf16 = has_bf16_scale(rule);
  const float inverse_in_fp32 =
      bf16 ? rounded_to_bf16(amax) / max_finite : amax * (1.0F / max_finite);
  float inverse = bf16 ? rounded_to_bf16(inverse_in_fp32) : inverse_in_fp32;
  if (inverse < kLeast) inverse = 1.0F;
  return {1.0F / inverse, inverse, 0};
}

TileScale ms_amp_scale(const ScaleOptions& options, float max_finite, float amax) {
  const float exponent = floor_log2(max_finite / amax);
  float scale = options.previous_scale;
  if (amax > 0.0F && std::isfinite(amax)) scale = std::exp2(std::abs(exponent));
  if (exponent < 0.0F) scale = 1.0F / scale;
  return {scale, 1.0F / scale, 0};
}

}  // namespace

std::string_view to_string(ScaleRule rule) { return traits(rule).name; }

ScaleRule find_scale_rule(std::string_view name) {
  return find_enumerator<ScaleRule>(kNames, "rule", name);
}

TileScaler::TileScaler(const ScaleOptions& options)
    : options_(options),
      format_(&format(options.format)),
      max_finite_(static_cast<float>(options.max_magnitude > 0.0 ? options.max_magnitude
                                                                 : format_->max_finite())) {
  require(!options.power_of_two || has_power_of_two(options.rule), "power_of_two",
          fmt::format("false for rule {}, which has no such option", to_string(options.rule)),
          "true");
  require(options.amax_floor == 0.0F || has_amax_floor(options.rule), "amax_floor",
          fmt::format("0 for rule {}, which has no such option", to_string(options.rule)),
          fmt::format("{}", options.amax_floor));
  require(std::isfinite(options.amax_floor) && options.amax_floor >= 0.0F, "amax_floor",
          "a finite number, 0 or more", fmt::format("{}", options.amax_floor));
  if (is_mx(options.rule))
    require(std::find(kMxElements.begin(), kMxElements.end(), format_->id) != kMxElements.end(),
            "format", "e4m3fn, e5m2, e2m3, e3m2 or e2m1", format_->name);
  require(!is_two_level(options.rule), "rule", "one with one level of scales",
          to_string(options.rule));
}

void TileScaler::operator()(std::span<const float> amaxes, std::span<TileScale> scales) const {
  if (amaxes.size() != scales.size())
    throw Error("scales", fmt::format("{}, as amaxes", amaxes.size()),
                fmt::format("{}", scales.size()));
  // Field by field: GCC 12 copies a whole one by way of memory, where its load waits for both
  // stores.
  const auto each = [&](const auto& scale_of) {
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
      const TileScale scale = scale_of(amaxes[i]);
      scales[i].scale = scale.scale;
      scales[i].inverse_scale = scale.inverse_scale;
      scales[i].e8m0 = scale.e8m0;
    }
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
      return each([&](float amax) { return deepseek_scale(options_, max_finite_, amax); });
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
    case ScaleRule::torchao_mx_floor:
    case ScaleRule::torchao_mx_ceil:
    case ScaleRule::torchao_mx_even:
      return each([&](float amax) { return torchao_mx_scale(options_.rule, *format_, amax); });
    case ScaleRule::torchao_mx_rceil:
      return each([&codes = ceil_log2_codes(), max_finite = max_finite_](float amax) {
        return torchao_mx_rceil_scale(codes, max_finite, amax);
      });
    case ScaleRule::compressed_mx:
    case ScaleRule::compressed_mx_bf16:
    case ScaleRule::compressed_mx6:
      return each([&](float amax) { return compressed_mx_scale(options_.rule, *format_, amax); });
    case ScaleRule::modelopt_mxfp8:
    case ScaleRule::modelopt_mxfp4:
      return each([&codes = ceil_log2_codes(),
                   is_mxfp4 = options_.rule == ScaleRule::modelopt_mxfp4, max_finite = max_finite_](
                      float amax) { return modelopt_mx_scale(codes, is_mxfp4, max_finite, amax); });
    case ScaleRule::deepgemm_fp4:
      return each(
          [max_finite = max_finite_](float amax) { return deepgemm_fp4_scale(max_finite, amax); });
    case ScaleRule::vllm_mxfp4:
      return each([&](float amax) { return vllm_mxfp4_scale(*format_, amax); });
    case ScaleRule::deepseek_ue8m0:
      return each([&](float amax) { return deepseek_ue8m0_scale(options_, max_finite_, amax); });
    case ScaleRule::flax:
    case ScaleRule::flax_bf16:
      return each([&](float amax) { return flax_scale(options_.rule, max_finite_, amax); });
    case ScaleRule::qwix:
    case ScaleRule::qwix_bf16:
      return each([&](float amax) { return qwix_scale(options_.rule, max_finite_, amax); });
    case ScaleRule::quotient:
    case ScaleRule::quotient_bf16:
    case ScaleRule::scale_bf16:
    case ScaleRule::quotient_eps:
    case ScaleRule::quotient_eps_bf16:
    case ScaleRule::fp32_scale_bf16:
    case ScaleRule::quotient_or_one:
    case ScaleRule::vllm_tensor:
      return each([&](float amax) { return quotient_scale(options_.rule, max_finite_, amax); });
    case ScaleRule::modelopt:
      return each([&](float amax) { return modelopt_scale(max_finite_, amax); });
    case ScaleRule::vllm_token:
      return each([&](float amax) { return vllm_token_scale(max_finite_, amax); });
    case ScaleRule::vllm_group:
      return each([&](float amax) { return vllm_group_scale(options_, max_finite_, amax); });
    case ScaleRule::deepgemm_first:
      return each([&](float amax) { return deepgemm_first_scale(max_finite_, amax); });
    case ScaleRule::nvfp4:
    case ScaleRule::te_nvfp4:
    case ScaleRule::torchao_nvfp4:
    case ScaleRule::compressed_nvfp4:
    case ScaleRule::compressed_nvfp4_bf16:
    case ScaleRule::modelopt_nvfp4:
    case ScaleRule::serving_nvfp4:
    case ScaleRule::te_4over6_mae:
    case ScaleRule::te_4over6_mse:
    case ScaleRule::te_4over6_mae_256:
    case ScaleRule::te_4over6_mse_256:
      return;  // the constructor refuses them
  }
}

TileScale tile_scale(const ScaleOptions& options, float amax) {
  const FloatEnvironment environment;
  TileScale scale;
  const TileScaler scaler(options);
  scaler(std::span(&amax, 1), std::span(&scale, 1));
  return scale;
}

float scaled_element(ScaleRule rule, float x, const TileScale& scale) {
  if (takes_bf16(rule)) x = rounded_to_bf16(x);
  float y = divides(rule) ? x / scale.inverse_scale : x * scale.scale;
  if (rounds_to_bf16(rule)) y = rounded_to_bf16(y);
  y = after_last_step(traits(rule).last, y);
  return std::isnan(y) ? float_of(0x7fffffff) : y;
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
