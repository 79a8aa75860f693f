#pragma once
// The choices that formats leave to a cast: rounding, overflow, subnormals,
// infinities and NaN. Real systems choose differently, so the choices of each
// system have a name.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class RoundingMode : std::uint8_t {
  nearest_even,         ///< ties to the even code; the only mode of OCP. Ties in E8M0 go up
  nearest_away,         ///< ties away from zero
  nearest_toward_zero,  ///< ties toward zero
  toward_zero,
  upward,
  downward,
  stochastic,  ///< up with probability equal to the discarded fraction (to 2^-32)
  to_odd,  ///< inexact results have an odd code: a second rounding is then as good as one (P3109)
};

/// The result for a magnitude that exceeds the largest finite number *after* rounding with
/// an unbounded exponent. `by_direction` and `canonical_nan` depend on the rounding mode, as IEEE
/// 754 does, which gives the largest finite number where a mode leads toward it.
enum class OverflowPolicy : std::uint8_t {
  saturate,        ///< +-max finite
  non_saturating,  ///< +-Inf if the format has it, else NaN, else +-max finite
  by_direction,    ///< +-max finite if the mode rounds toward it, else +-Inf, else +-max finite
  canonical_nan,   ///< the same, but the NaN of a positive NaN in a format without Inf (RISC-V)
};
std::string_view to_string(OverflowPolicy policy);

enum class SubnormalPolicy : std::uint8_t {
  preserve,             ///< gradual underflow
  flush_to_zero,        ///< |x| < min normal becomes a zero with x's sign, before rounding
  raise_to_min_normal,  ///< 0 < |x| < min normal becomes +-min normal (a listing of the naive-FP8
                        ///< tutorial)
};
std::string_view to_string(SubnormalPolicy policy);

enum class InfinityPolicy : std::uint8_t {
  saturate,        ///< +-max finite
  non_saturating,  ///< +-Inf if the format has it, else NaN, else +-max finite
  propagate,       ///< +-Inf if the format has it, else +-max finite
  canonical_nan,   ///< +-Inf if the format has it, else the NaN of a positive NaN (RISC-V)
  fnuz_nan,        ///< NaN if it is the code of -0 (FNUZ), else +-max finite (ONNX up to 23)
};
std::string_view to_string(InfinityPolicy policy);

/// The code for a NaN, and for a non-saturating overflow in a format without Inf.
enum class NanPolicy : std::uint8_t {
  positive_all_ones,  ///< 0x7f: CUDA; formats without NaN give +max finite, as CUDA does
  signed_all_ones,    ///< 0x7f or 0xff
  signed_quiet,       ///< sign kept, only the top mantissa bit set (E5M2: 0x7e, 0xfe): ml_dtypes;
                      ///< formats without NaN give a zero of the other sign, as ml_dtypes does
  positive_max,       ///< +max finite: a clamp by fmax(-max, fmin(x, max)), which drops NaN (vLLM)
  negative_max,       ///< -max finite: a clamp by fmin(fmax(x, -max), max)
};
std::string_view to_string(NanPolicy policy);

/// The result for negative numbers in an unsigned format, and for zeros if it has none (E8M0).
enum class UnsignedPolicy : std::uint8_t {
  nan,  ///< NaN if the format has it, else as `least`: ml_dtypes. What rounds to a zero is one
  ignore_sign,  ///< the magnitude is converted; zero becomes E8M0's 2^-127: CUDA
  least,        ///< the smallest value, which is zero if there is one: P3109's saturation
};

struct CastPolicy {
  RoundingMode rounding = RoundingMode::nearest_even;
  OverflowPolicy overflow = OverflowPolicy::saturate;
  SubnormalPolicy subnormals = SubnormalPolicy::preserve;
  InfinityPolicy infinity = InfinityPolicy::saturate;
  NanPolicy nan = NanPolicy::positive_all_ones;
  UnsignedPolicy unsigned_target = UnsignedPolicy::ignore_sign;
  double max_magnitude = 0.0;  ///< the largest magnitude of the result; 0: the format's max finite

  friend bool operator==(const CastPolicy&, const CastPolicy&) = default;
};

/// A policy with the name of the system that uses it.
struct CastProfile {
  std::string_view name;
  CastPolicy policy;
  std::string_view used_by;
};

inline constexpr CastPolicy kNvidiaSatfinite{};
inline constexpr CastPolicy kNvidiaNosat{.overflow = OverflowPolicy::non_saturating,
                                         .infinity = InfinityPolicy::non_saturating};
inline constexpr CastPolicy kOcpSaturating{.nan = NanPolicy::signed_all_ones,
                                           .unsigned_target = UnsignedPolicy::nan};
inline constexpr CastPolicy kOcpNonsaturating{.overflow = OverflowPolicy::non_saturating,
                                              .infinity = InfinityPolicy::non_saturating,
                                              .nan = NanPolicy::signed_all_ones,
                                              .unsigned_target = UnsignedPolicy::nan};
inline constexpr CastPolicy kMlDtypes{.overflow = OverflowPolicy::non_saturating,
                                      .infinity = InfinityPolicy::non_saturating,
                                      .nan = NanPolicy::signed_quiet,
                                      .unsigned_target = UnsignedPolicy::nan};
inline constexpr CastPolicy kSeedToy{.rounding = RoundingMode::nearest_toward_zero,
                                     .subnormals = SubnormalPolicy::raise_to_min_normal,
                                     .max_magnitude = 240.0};
inline constexpr CastPolicy kFlush{.subnormals = SubnormalPolicy::flush_to_zero};

/// P3109's saturation modes. Its NaN has one code, so `nan` does not matter.
inline constexpr CastPolicy kP3109SatFinite{.unsigned_target = UnsignedPolicy::least};
inline constexpr CastPolicy kP3109SatPropagate{.infinity = InfinityPolicy::propagate,
                                               .unsigned_target = UnsignedPolicy::least};
inline constexpr CastPolicy kP3109SatNone{.overflow = OverflowPolicy::by_direction,
                                          .infinity = InfinityPolicy::propagate,
                                          .unsigned_target = UnsignedPolicy::nan};

/// AVX10.2's conversions of FP16. Their BF8 keeps the upper bits of a NaN, of which this is the
/// quiet one.
inline constexpr CastPolicy kAvx10{.overflow = OverflowPolicy::non_saturating,
                                   .infinity = InfinityPolicy::non_saturating,
                                   .nan = NanPolicy::signed_quiet,
                                   .unsigned_target = UnsignedPolicy::nan};
inline constexpr CastPolicy kAvx10Saturating{.nan = NanPolicy::signed_quiet,
                                             .unsigned_target = UnsignedPolicy::nan};

/// RISC-V's: the rounding mode is that of frm, and every NaN is 0x7f.
inline constexpr CastPolicy kZvfofp8min{.overflow = OverflowPolicy::canonical_nan,
                                        .infinity = InfinityPolicy::canonical_nan};
inline constexpr CastPolicy kZvfofp8minSaturating{};

/// ONNX's with saturate = 1. Into E8M0 with its round_mode: `upward`, `downward` or `nearest_even`.
inline constexpr CastPolicy kOnnx{.nan = NanPolicy::signed_all_ones};
inline constexpr CastPolicy kOnnx19{.infinity = InfinityPolicy::fnuz_nan,
                                    .nan = NanPolicy::signed_all_ones};

inline constexpr CastPolicy kVllm{.nan = NanPolicy::positive_max};
inline constexpr CastPolicy kVllmGroup{.nan = NanPolicy::negative_max};

inline constexpr std::array<CastProfile, 18> kCastProfiles{{
    {"nvidia_satfinite", kNvidiaSatfinite,
     "cvt.rn.satfinite, CUDA __NV_SATFINITE, TransformerEngine"},
    {"nvidia_nosat", kNvidiaNosat, "CUDA __NV_NOSAT"},
    {"ocp_saturating", kOcpSaturating, "OCP OFP8 1.0, saturating mode; PyTorch >= 2.12 to E4M3"},
    {"ocp_nonsaturating", kOcpNonsaturating,
     "OCP OFP8 1.0, non-saturating mode; PyTorch >= 2.12 to E5M2; ONNX Cast, saturate = 0"},
    {"ml_dtypes", kMlDtypes, "ml_dtypes, JAX, older PyTorch eager casts"},
    {"seed_toy", kSeedToy,
     "the NumPy listing of the naive-FP8 tutorial (E4M3 grid that ends at 240)"},
    {"flush", kFlush, "satfinite with subnormals flushed, as the naive-FP8 tutorial describes"},
    {"vllm", kVllm, "vLLM's scaled_fp8_conversion, whose clamp makes NaN +448"},
    {"vllm_group", kVllmGroup, "vLLM's per_token_group_quant, whose clamp makes NaN -448"},
    {"p3109_sat_finite", kP3109SatFinite, "IEEE P3109 (interim report of June 2026), SatFinite"},
    {"p3109_sat_propagate", kP3109SatPropagate, "IEEE P3109, SatPropagate"},
    {"p3109_sat_none", kP3109SatNone, "IEEE P3109, SatNone"},
    {"avx10_2", kAvx10, "AVX10.2: VCVTPH2BF8, VCVTPH2HF8"},
    {"avx10_2_sat", kAvx10Saturating, "AVX10.2: VCVTPH2BF8S, VCVTPH2HF8S"},
    {"zvfofp8min", kZvfofp8min, "RISC-V Zvfofp8min: vfncvt.f.f.q, vfncvtbf16.f.f.w"},
    {"zvfofp8min_sat", kZvfofp8minSaturating,
     "RISC-V Zvfofp8min: vfncvt.sat.f.f.q, vfncvtbf16.sat.f.f.w"},
    {"onnx", kOnnx, "ONNX Cast and QuantizeLinear, saturate = 1, from opset 24 on"},
    {"onnx_19", kOnnx19, "ONNX Cast and QuantizeLinear, saturate = 1, opsets 19 to 23"},
}};

/// The profile called `name`. Throws `Error` that lists the names.
const CastProfile& find_cast_profile(std::string_view name);

/// The mode called `name` (`nearest_even` ...). The short names rne, rz, ru, rd, rna and sr are
/// accepted too. Throws `Error`.
RoundingMode find_rounding_mode(std::string_view name);
std::string_view to_string(RoundingMode mode);

}  // namespace fp8lab
