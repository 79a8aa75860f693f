#pragma once
// NVFP4: E2M1 elements, an E4M3 scale (UE4M3: never negative) for every 16 of a row or every 16x16,
// and one FP32 scale of the tensor that brings the largest of them to 448. value = code * UE4M3
// scale * tensor scale. Systems agree in that and differ in roundings, at zeros and at NaN; the
// formulas below were read in the named sources. Binary32 arithmetic to nearest even, one rounding
// an operation; A: amax of the tensor, a: of the tile, e4m3(): nearest even, at most 448.
//
// nvfp4, te_nvfp4:   S = 2688 / A, at most FLT_MAX; 1 where A is 0 or Inf
//                    s = e4m3((a / 6) * S), te: e4m3(a * (S * (1 / 6)))
//                    x * min(1 / (s * (1 / S)), FLT_MAX)
// torchao_nvfp4:     T = A / 2688
//                    s = e4m3(clamp((a / 6) / T, 2^-6, 448))
//                    x * ((1 / T) / s)
// compressed_nvfp4:  S = 2688 * (1 / max(A, 2^-126)); 1 where that is NaN or Inf
//                    s = e4m3((a / 6) * S); 0 becomes 1/8
//                    x / (s / S), -0 becomes +0
//                    _bf16, of BF16 tensors: 1 / A, S and a / 6 are rounded to BF16
// modelopt_nvfp4:    T = A / 2688
//                    s = e4m3(clamp(a / (6 * T), 2^-9, 448)), 0 counts as 1
//                    x / (s * T), -0 becomes +0
// serving_nvfp4:     S as nvfp4
//                    s = e4m3(S * (a * rcp(6)))
//                    x * rcp(s * rcp(S)), 0 where s is 0
//                    rcp: 1 / x rounded to nearest, subnormals flushed on both sides. *Assumed*:
//                    the instruction is rcp.approx.ftz, which may differ in its last bit
// te_4over6_*:       as nvfp4, with 6 * B instead of 2688, B being 448 or 256 (_256); and with
//                    s4 = e4m3((a / 6) * S * 1.5) instead of s, if that leaves the smaller error:
//                    the sum over a tile of |q * s * A / (6 * B) - x| (mae) or its square (mse), q
//                    the element's value: along a row in order, then of rows r and r + 8, r + 4 ...
//
// nvfp4: arXiv 2509.25149, appendix on quantization (zeros and ends as TransformerEngine has them).
// NaN is ignored in the amaxes of nvfp4 and te_nvfp4 and makes those of the others NaN. A NaN
// element becomes +6, as `cvt.rn.satfinite.e2m1x2` has it; torchao's code for it is arbitrary.
//
// The tensor's inverse scale is 1 / S or T. TransformerEngine keeps A and multiplies amaxes in its
// GEMM's alpha, compressed-tensors keeps S and divides by it: their alphas may differ from the
// product of inverse scales in the last bit.

#include <cstdint>
#include <optional>

#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/encode_tiles.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// The FP32 level.
struct TensorScale {
  float scale = 1.0F;          ///< S, or 1 / T
  float inverse_scale = 1.0F;  ///< 1 / S, or T
  float amax = 0.0F;           ///< A
};

/// `amax` of the tensor (>= 0, Inf or NaN). Throws `Error` for a rule without two levels.
TensorScale tensor_scale(ScaleRule rule, float amax);

/// The scale of one tile.
struct TwoLevelScale {
  std::uint8_t code = 0;       ///< UE4M3; 0x7f is NaN
  float inverse_scale = 0.0F;  ///< its value
  float factor = 1.0F;  ///< what elements are multiplied by, or divided by as the rule has it
};

/// `amax` of the tile; of te_4over6_* the scale s. Needs rounding to nearest, with subnormals.
TwoLevelScale two_level_scale(ScaleRule rule, const TensorScale& tensor, float amax);

namespace scaling_detail {

/// Throws `Error` unless the recipe has E2M1 elements, tiles, and the current tensor's scale or a
/// calibrated one, which is the upper level: tiles always have their own.
void validate_two_level(const Recipe& recipe);

/// What one cast has beside its recipe.
struct TwoLevelCast {
  std::optional<float> known_amax = {};    ///< the tensor's, where it is not that of `x`
  std::optional<RandomStream> draws = {};  ///< stochastic rounding: draw r * k + c is of x[r, c]
};

/// Codes and scales into `q`, whose sizes are right already.
void encode_two_level(const Recipe& recipe, const FloatMatrix& x, const TwoLevelCast& cast,
                      QuantizedTensor& q, const Execution& execution);

}  // namespace scaling_detail
}  // namespace fp8lab
