#pragma once
// The scale of a tile from its largest magnitude (amax), as each real system
// computes it, including its anomalies.
//
// `scale` multiplies values before the cast to FP8; `inverse_scale` multiplies codes to
// give values back. Specified in docs/specification/scaling.md.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Formulas, *read* in the named sources. M is the format's max finite value.
/// Arithmetic is binary32, to nearest even, unless the line says otherwise.
enum class ScaleRule : std::uint8_t {
  unit,      ///< 1 for every tile
  te,        ///< TransformerEngine current and blockwise: M / amax; amax 0, Inf, NaN give 1;
             ///< an infinite quotient gives FLT_MAX; power_of_two truncates the mantissa
  torchao,   ///< torchao: M / max(amax, 1e-12) in binary64, rounded once; Inf gives 0, NaN NaN;
             ///< power_of_two is 2^floor(log2 s), whose log2 rounds *up* next to powers of two
  deepseek,  ///< DeepSeek-V3's kernel: inverse = amax / M, elements are *divided* by it;
             ///< without amax_floor amax 0 gives inverse 0 and NaN codes
  deepgemm,  ///< DeepGEMM: inverse = max(amax, 1e-4) / M, elements times 1 / inverse;
             ///< power_of_two takes the next E8M0 power above (exponent clamped to 1..254)
  ms_amp,    ///< 2^floor(log2(M / amax)), which may be Inf; amax 0 and NaN keep the previous
             ///< scale; amax Inf gives the *reciprocal* of the previous one (as shipped)
  // OCP's E8M0 in all four: code 0 is 2^-127, an amax that is not finite gives 255, which is NaN.
  mx_floor,  ///< OCP MX: 2^(floor(log2 amax) - emax); finite overflow saturates
  mx_ceil,   ///< exponent of amax rounded up, minus emax
  mx_even,   ///< amax rounded to the element's mantissa first, then as floor
  mx_rceil,  ///< cuBLAS: amax * (1 / M), exponent rounded up
  te_mx,     ///< TransformerEngine MXFP8: as rceil, but amax Inf gives E8M0 254, whose
             ///< reciprocal it computes as 0, and E8M0 0 multiplies by 1
  // torchao's to_mx: code 0 divides by 2^-126; Inf counts as 2^128, so that the code is a number;
  // NaN gives code 255, and finite elements of that tile become zeros.
  torchao_mx_floor,
  torchao_mx_ceil,
  torchao_mx_even,
  torchao_mx_rceil,  ///< ceil(log2(amax / M)), whose log2 rounds *down* next to powers of two;
                     ///< Inf gives 254, NaN a NaN scale, and code 0 multiplies by 1
  // compressed-tensors: floor(log2 amax) - emax, and one more if amax is at least 1.75 (MXFP6:
  // 1.9375) times a power of two; code 0 is 2^-127. An amax of at least 1.75 * 2^127, Inf and NaN
  // give 255: an infinite scale there, under which finite elements become zeros.
  compressed_mx,       ///< MXFP8 and MXFP4 of FP32 tensors; an element of -0 becomes +0
  compressed_mx_bf16,  ///< the same for BF16 tensors: quotients are rounded to BF16 first
  compressed_mx6,      ///< MXFP6; -0 remains -0
  // ModelOpt: 2^ceil(log2(amax / M)), whose log2 rounds *down* next to powers of two.
  modelopt_mxfp8,  ///< Inf gives 254, NaN 0; code 0 is 2^-127
  modelopt_mxfp4,  ///< every zero becomes -0; Inf and NaN, undefined there, give 255
  deepgemm_fp4,    ///< max(amax, 1e-4) / 6, exponent rounded up and clamped to 1..254, also of
                   ///< NaN; ties go toward zero, every zero and NaN becomes +0
  vllm_mxfp4,      ///< floor(log2 amax) - 2, and one more from 1.75 times a power of two on, at
                   ///< most 254; code 0 multiplies by 0
  // Serving systems. Elements are divided by `inverse` unless the line says otherwise.
  quotient,           ///< inverse = amax / M; amax 0 gives NaN codes
  quotient_bf16,      ///< the same in BF16: x, inverse and quotients are rounded to it
  scale_bf16,         ///< x and inverse are BF16, quotients binary32
  quotient_eps,       ///< as quotient; inverse 0 becomes 2^-23, and a quotient of -0 becomes +0
  quotient_eps_bf16,  ///< the same in BF16: inverse 0 becomes 2^-7
  fp32_scale_bf16,    ///< inverse = amax / M in binary32 of a BF16 tensor; quotients are BF16
  quotient_or_one,    ///< as quotient, in binary32 for every tensor; amax 0 or NaN gives 1,
                      ///< a subnormal one counts as 2^-126, Inf as FLT_MAX
  modelopt,           ///< scale = M * (1 / amax), each rounded; amax <= 2^-24 counts as 1
  vllm_tensor,        ///< inverse = amax / M, elements *times* 1 / inverse; amax 0: 0 times Inf
  vllm_token,         ///< inverse = max(amax / M, 1 / (512 M))
  vllm_group,         ///< inverse = max(amax, 1e-10) / M; power_of_two takes the next one above
  deepgemm_first,     ///< inverse = max(amax, 1e-4) / M, elements times M * (1 / max(amax, 1e-4))
  deepseek_ue8m0,     ///< DeepSeek-V3.2: the next power of two above amax * (1 / M); divides
  // JAX. Elements are divided by `inverse` in the type of the tensor.
  flax,       ///< inverse = 1 / (M / amax); of amax 0, Inf and NaN 1, or that of the last step
  flax_bf16,  ///< the same in BF16: inverse is rounded to it
  qwix,       ///< inverse = amax / M; below 2^-63 it is 1
  qwix_bf16,  ///< the same in BF16
  // Two levels: UE4M3 scales of tiles under an FP32 scale of the tensor. The formulas are in
  // two_level.hpp; `TileScaler` has none of them.
  nvfp4,                  ///< NVIDIA's paper on NVFP4 pretraining
  te_nvfp4,               ///< TransformerEngine
  torchao_nvfp4,          ///< torchao, with a per-tensor scale of the tensor's own amax
  compressed_nvfp4,       ///< compressed-tensors, of FP32 tensors
  compressed_nvfp4_bf16,  ///< the same for BF16 tensors: S and a / 6 are BF16 numbers
  modelopt_nvfp4,         ///< ModelOpt's NVFP4QTensor
  serving_nvfp4,          ///< flashinfer, TensorRT-LLM and vLLM, whose reciprocals are approximate
  te_4over6_mae,          ///< TransformerEngine 4over6, of the smaller sum of errors
  te_4over6_mse,          ///< of squared errors
  te_4over6_mae_256,      ///< the largest scale of a tile is brought to 256 instead of 448
  te_4over6_mse_256,
};

/// The format in which a rule's scales of tiles are stored, and what is above them.
enum class ScaleLevels : std::uint8_t { fp32, e8m0, two };

/// What happens to an element between its product (or quotient) and its cast.
enum class LastStep : std::uint8_t {
  none,
  no_minus_zero,        ///< -0 becomes +0
  fp4_down_minus_zero,  ///< ties of E2M1 toward zero; every zero becomes -0
  fp4_down_plus_zero,   ///< ties of E2M1 toward zero; what becomes zero, and NaN, becomes +0
};

/// How TransformerEngine's 4over6 compares the two scales of a tile.
enum class FourOverSix : std::uint8_t { none, mae, mse };

/// All of a rule but its formula (scale_rule.cpp, mx_rules.hpp, two_level.cpp).
struct ScaleRuleTraits {
  ScaleRule rule;
  std::string_view name;
  ScaleLevels levels = ScaleLevels::fp32;
  bool divides = false;       ///< elements are divided by `inverse_scale`, one level
  bool ignores_nan = false;   ///< in the amax, as CUDA's fmaxf does
  bool power_of_two = false;  ///< has this option
  bool amax_floor = false;    ///< has this option
  bool fp32_tensor = false;   ///< the system computes in the type of its tensor, FP32 here
  bool bf16_tensor = false;   ///< the same of BF16: elements are rounded to it first
  bool bf16_scale = false;    ///< scales are BF16 numbers
  bool bf16_product = false;  ///< products (or quotients) are rounded to BF16
  LastStep last = LastStep::none;
  FourOverSix four_over_six = FourOverSix::none;
  float tile_bound = 448.0F;  ///< two levels: what the largest scale of a tile is brought to
};

inline constexpr std::array kScaleRules = [] {
  using enum ScaleRule;
  using enum ScaleLevels;
  using enum LastStep;
  return std::to_array<ScaleRuleTraits>({
      {.rule = unit, .name = "unit", .ignores_nan = true},
      {.rule = te, .name = "te", .ignores_nan = true, .power_of_two = true, .amax_floor = true},
      {.rule = torchao, .name = "torchao", .power_of_two = true, .amax_floor = true},
      {.rule = deepseek,
       .name = "deepseek",
       .divides = true,
       .ignores_nan = true,
       .amax_floor = true},
      {.rule = deepgemm, .name = "deepgemm", .power_of_two = true, .amax_floor = true},
      {.rule = ms_amp, .name = "ms_amp"},
      {.rule = mx_floor, .name = "mx_floor", .levels = e8m0},
      {.rule = mx_ceil, .name = "mx_ceil", .levels = e8m0},
      {.rule = mx_even, .name = "mx_even", .levels = e8m0},
      {.rule = mx_rceil, .name = "mx_rceil", .levels = e8m0},
      {.rule = te_mx, .name = "te_mx", .levels = e8m0, .ignores_nan = true},
      {.rule = torchao_mx_floor, .name = "torchao_mx_floor", .levels = e8m0},
      {.rule = torchao_mx_ceil, .name = "torchao_mx_ceil", .levels = e8m0},
      {.rule = torchao_mx_even, .name = "torchao_mx_even", .levels = e8m0},
      {.rule = torchao_mx_rceil, .name = "torchao_mx_rceil", .levels = e8m0},
      {.rule = compressed_mx,
       .name = "compressed_mx",
       .levels = e8m0,
       .fp32_tensor = true,
       .last = no_minus_zero},
      {.rule = compressed_mx_bf16,
       .name = "compressed_mx_bf16",
       .levels = e8m0,
       .bf16_tensor = true,
       .bf16_product = true,
       .last = no_minus_zero},
      {.rule = compressed_mx6, .name = "compressed_mx6", .levels = e8m0},
      {.rule = modelopt_mxfp8, .name = "modelopt_mxfp8", .levels = e8m0},
      {.rule = modelopt_mxfp4,
       .name = "modelopt_mxfp4",
       .levels = e8m0,
       .last = fp4_down_minus_zero},
      {.rule = deepgemm_fp4, .name = "deepgemm_fp4", .levels = e8m0, .last = fp4_down_plus_zero},
      {.rule = vllm_mxfp4, .name = "vllm_mxfp4", .levels = e8m0, .ignores_nan = true},
      {.rule = quotient, .name = "quotient", .divides = true, .fp32_tensor = true},
      {.rule = quotient_bf16,
       .name = "quotient_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_scale = true,
       .bf16_product = true},
      {.rule = scale_bf16,
       .name = "scale_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_scale = true},
      {.rule = quotient_eps,
       .name = "quotient_eps",
       .divides = true,
       .fp32_tensor = true,
       .last = no_minus_zero},
      {.rule = quotient_eps_bf16,
       .name = "quotient_eps_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_scale = true,
       .bf16_product = true,
       .last = no_minus_zero},
      {.rule = fp32_scale_bf16,
       .name = "fp32_scale_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_product = true},
      {.rule = quotient_or_one, .name = "quotient_or_one", .divides = true},
      {.rule = modelopt, .name = "modelopt"},
      {.rule = vllm_tensor, .name = "vllm_tensor", .ignores_nan = true},
      {.rule = vllm_token, .name = "vllm_token", .divides = true, .ignores_nan = true},
      {.rule = vllm_group,
       .name = "vllm_group",
       .divides = true,
       .ignores_nan = true,
       .power_of_two = true},
      {.rule = deepgemm_first, .name = "deepgemm_first"},
      {.rule = deepseek_ue8m0,
       .name = "deepseek_ue8m0",
       .divides = true,
       .ignores_nan = true,
       .amax_floor = true},
      {.rule = flax, .name = "flax", .divides = true, .fp32_tensor = true},
      {.rule = flax_bf16,
       .name = "flax_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_scale = true,
       .bf16_product = true},
      {.rule = qwix, .name = "qwix", .divides = true, .fp32_tensor = true},
      {.rule = qwix_bf16,
       .name = "qwix_bf16",
       .divides = true,
       .bf16_tensor = true,
       .bf16_scale = true,
       .bf16_product = true},
      {.rule = nvfp4, .name = "nvfp4", .levels = two, .ignores_nan = true},
      {.rule = te_nvfp4, .name = "te_nvfp4", .levels = two, .ignores_nan = true},
      {.rule = torchao_nvfp4, .name = "torchao_nvfp4", .levels = two},
      {.rule = compressed_nvfp4, .name = "compressed_nvfp4", .levels = two, .fp32_tensor = true},
      {.rule = compressed_nvfp4_bf16,
       .name = "compressed_nvfp4_bf16",
       .levels = two,
       .bf16_tensor = true},
      {.rule = modelopt_nvfp4, .name = "modelopt_nvfp4", .levels = two},
      {.rule = serving_nvfp4, .name = "serving_nvfp4", .levels = two, .ignores_nan = true},
      {.rule = te_4over6_mae,
       .name = "te_4over6_mae",
       .levels = two,
       .ignores_nan = true,
       .four_over_six = FourOverSix::mae},
      {.rule = te_4over6_mse,
       .name = "te_4over6_mse",
       .levels = two,
       .ignores_nan = true,
       .four_over_six = FourOverSix::mse},
      {.rule = te_4over6_mae_256,
       .name = "te_4over6_mae_256",
       .levels = two,
       .ignores_nan = true,
       .four_over_six = FourOverSix::mae,
       .tile_bound = 256.0F},
      {.rule = te_4over6_mse_256,
       .name = "te_4over6_mse_256",
       .levels = two,
       .ignores_nan = true,
       .four_over_six = FourOverSix::mse,
       .tile_bound = 256.0F},
  });
}();

constexpr const ScaleRuleTraits& traits(ScaleRule rule) {
  return kScaleRules[static_cast<std::size_t>(rule)];
}
static_assert([] {
  for (std::size_t i = 0; i < kScaleRules.size(); ++i)
    if (kScaleRules[i].rule != static_cast<ScaleRule>(i)) return false;
  return true;
}());

std::string_view to_string(ScaleRule rule);
/// Throws `Error`.
ScaleRule find_scale_rule(std::string_view name);
constexpr bool is_mx(ScaleRule rule) { return traits(rule).levels == ScaleLevels::e8m0; }

/// Whether tiles have UE4M3 scales under one FP32 scale of the tensor.
constexpr bool is_two_level(ScaleRule rule) { return traits(rule).levels == ScaleLevels::two; }

/// The format in which the scales of its tiles are stored.
constexpr FormatId scale_format(ScaleRule rule) {
  if (is_mx(rule)) return FormatId::e8m0fnu;
  return is_two_level(rule) ? FormatId::e4m3fn : FormatId::f32;
}

/// Whether elements are divided by `inverse_scale` rather than multiplied by `scale`.
constexpr bool divides(ScaleRule rule) { return traits(rule).divides; }

/// Whether scales are BF16 numbers.
constexpr bool has_bf16_scale(ScaleRule rule) { return traits(rule).bf16_scale; }

/// Whether products (or quotients) are rounded to BF16 before their cast.
constexpr bool rounds_to_bf16(ScaleRule rule) { return traits(rule).bf16_product; }

/// Whether the system's tensor is BF16: elements are rounded to BF16 first.
constexpr bool takes_bf16(ScaleRule rule) { return traits(rule).bf16_tensor; }

/// Whether the system computes in the type of its tensor (FP32 here), which decides bits.
constexpr bool computes_in_fp32_input(ScaleRule rule) { return traits(rule).fp32_tensor; }

/// Whether the rule is Flax's, whose scale may come from earlier tensors.
constexpr bool is_flax(ScaleRule rule) {
  return rule == ScaleRule::flax || rule == ScaleRule::flax_bf16;
}

/// Whether an element is changed between its product (or quotient) and its cast.
constexpr bool adjusts_elements(ScaleRule rule) {
  return takes_bf16(rule) || traits(rule).last != LastStep::none;
}

/// Whether a rule uses `power_of_two` or `amax_floor` of `ScaleOptions`.
constexpr bool has_power_of_two(ScaleRule rule) { return traits(rule).power_of_two; }
constexpr bool has_amax_floor(ScaleRule rule) { return traits(rule).amax_floor; }

struct TileScale {
  float scale = 1.0F;          ///< multiplies elements before the cast (deepseek: 1 / inverse)
  float inverse_scale = 1.0F;  ///< stored by the system; multiplies codes
  std::uint8_t e8m0 = 0;       ///< MX rules: the stored code of inverse_scale
};

struct ScaleOptions {
  ScaleRule rule = ScaleRule::te;
  FormatId format = FormatId::e4m3fn;
  bool power_of_two = false;  ///< for rules with `has_power_of_two`
  /// For rules with `has_amax_floor`: smaller amaxes count as this one. If the rule has a fixed
  /// floor, the larger applies. te: TransformerEngine's amax_epsilon; deepseek: 1e-4 as released.
  float amax_floor = 0.0F;
  float previous_scale = 1.0F;  ///< for ms_amp
  double max_magnitude = 0.0;   ///< `CastPolicy::max_magnitude`; 0: the format's max finite
};

/// A rule prepared for many tiles.
class TileScaler {
 public:
  /// Throws `Error` for a format that the rule does not support (MX supports E4M3, E5M2, E2M3, E3M2
  /// and E2M1), a rule with two levels, and an option that is set but not used.
  explicit TileScaler(const ScaleOptions& options);

  /// Sets scales[i] for a tile whose largest magnitude is amaxes[i] (>= 0, Inf or NaN).
  /// Throws `Error` for spans of different lengths.
  void operator()(std::span<const float> amaxes, std::span<TileScale> scales) const;

 private:
  ScaleOptions options_;
  const Format* format_;
  float max_finite_;
};

/// The scale of one tile. Throws `Error` as `TileScaler` does.
TileScale tile_scale(const ScaleOptions& options, float amax);

/// The value that is cast: x times the scale, or divided by the inverse scale, as `rule` says. NaN
/// is positive, as on GPUs. The caller's mode must be rounding to nearest, with subnormals.
float scaled_element(ScaleRule rule, float x, const TileScale& scale);

/// `x` rounded to BF16, to nearest even; a NaN keeps its bits.
inline float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return std::bit_cast<float>(is_nan ? bits : rounded);
}

/// True if the amax reduction of the system ignores NaN (CUDA's fmaxf), false if
/// one NaN makes the amax NaN (torch.amax).
constexpr bool amax_ignores_nan(ScaleRule rule) { return traits(rule).ignores_nan; }

/// The largest |x| as binary32; +0 for no elements. -0 counts as 0.
float amax(std::span<const float> x, bool ignore_nan);

}  // namespace fp8lab
