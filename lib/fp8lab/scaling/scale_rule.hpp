#pragma once
// From the largest magnitude (amax) of a tile to its scale, as each real
// system computes it, quirks included.
//
// `scale` multiplies into FP8; `inverse_scale` multiplies back. NUMERICS 4.

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Formulas, *read* in the named sources. M is the format's max finite value;
/// all arithmetic is binary32, nearest even, unless said otherwise.
enum class ScaleRule : std::uint8_t {
  unit,      ///< 1 whatever the tile holds
  te,        ///< TransformerEngine current and blockwise: M / amax; amax 0, Inf, NaN give 1;
             ///< an infinite quotient gives FLT_MAX; power_of_two truncates the mantissa
  torchao,   ///< torchao: M / max(amax, 1e-12) in binary64, rounded once; Inf gives 0, NaN NaN;
             ///< power_of_two is 2^floor(log2 s), whose log2 rounds *up* next to powers of two
  deepseek,  ///< DeepSeek-V3's kernel: inverse = amax / M, elements are *divided* by it;
             ///< amax 0 gives inverse 0 and NaN codes
  deepgemm,  ///< DeepGEMM: inverse = max(amax, 1e-4) / M, elements times 1 / inverse;
             ///< power_of_two takes the next E8M0 power above (exponent clamped to 1..254)
  ms_amp,    ///< 2^floor(log2(M / amax)), which may be Inf; amax 0 and NaN keep the previous
             ///< scale; amax Inf gives the *reciprocal* of the previous one (as shipped)
  mx_floor,  ///< OCP MX, torchao FLOOR: 2^(floor(log2 amax) - emax); finite overflow saturates
  mx_ceil,   ///< torchao CEIL: exponent of amax rounded up, minus emax
  mx_even,   ///< torchao EVEN: amax rounded to the element's mantissa first, then as floor
  mx_rceil,  ///< torchao RCEIL, cuBLAS: amax * (1 / M), exponent rounded up
  te_mx,     ///< TransformerEngine MXFP8: as rceil, but amax Inf gives E8M0 254, whose
             ///< reciprocal it computes as 0, and E8M0 0 multiplies by 1
};

std::string_view to_string(ScaleRule rule);
/// Throws `Error`.
ScaleRule find_scale_rule(std::string_view name);
constexpr bool is_mx(ScaleRule rule) { return rule >= ScaleRule::mx_floor; }

struct TileScale {
  float scale = 1.0F;          ///< what the elements are multiplied by (deepseek: 1 / inverse)
  float inverse_scale = 1.0F;  ///< what the system stores and multiplies back with
  std::uint8_t e8m0 = 0;       ///< MX rules: the stored code of inverse_scale
};

struct ScaleOptions {
  ScaleRule rule = ScaleRule::te;
  FormatId format = FormatId::e4m3fn;
  bool power_of_two = false;    ///< te, torchao, deepgemm
  float amax_floor = 0.0F;      ///< te: TransformerEngine's amax_epsilon
  float previous_scale = 1.0F;  ///< ms_amp
  double max_magnitude = 0.0;   ///< where a cast policy's grid ends early; 0: the format's max
};

/// A rule made ready for many tiles.
class TileScaler {
 public:
  /// Throws `Error` where the rule does not know the format (MX: E4M3, E5M2).
  explicit TileScaler(const ScaleOptions& options);

  /// scales[i] is that of a tile whose largest magnitude is amaxes[i] (>= 0, Inf
  /// or NaN). Throws `Error` for spans of different lengths.
  void operator()(std::span<const float> amaxes, std::span<TileScale> scales) const;

 private:
  ScaleOptions options_;
  const Format* format_;
  float max_finite_;
};

/// The scale of one tile. Throws `Error` where `TileScaler` does.
TileScale tile_scale(const ScaleOptions& options, float amax);

/// True where an amax reduction of the system drops NaN (CUDA's fmaxf) and
/// false where one NaN makes the amax NaN (torch.amax).
bool amax_ignores_nan(ScaleRule rule);

/// The largest |x| as binary32; +0 for no elements. -0 counts as 0.
float amax(std::span<const float> x, bool ignore_nan);

}  // namespace fp8lab
