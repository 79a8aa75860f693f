#pragma once
// What a format can hold: its range in decades, and the share of a wide tensor
// that survives a cast under one scale. Claims F1 and F1a take their figures here.

#include <cstddef>
#include <span>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// The extent of a format on a log10 axis.
struct FormatRange {
  double min_subnormal = 0.0;
  double min_normal = 0.0;
  double max_finite = 0.0;
  double decades_normal = 0.0;           ///< log10(max_finite / min_normal)
  double decades_with_subnormals = 0.0;  ///< log10(max_finite / min_subnormal)
};
FormatRange range_of(const Format& f);

/// What became of the non-zero elements of a tensor in a cast with one scale.
/// Shares of the non-zero elements, 0 to 1; all 0 if there are none.
struct SurvivalShares {
  double representable = 0.0;  ///< neither became zero nor saturated
  double accurate = 0.0;       ///< representable, with relative error <= 2^-(mantissa_bits + 1)
  double crushed = 0.0;        ///< became zero
  double saturated = 0.0;      ///< rounded above max finite
};

/// Casts x * scale (binary32) into `f`, element by element. Relative errors are
/// those of the cast of the scaled element. Throws `Error` for formats of more
/// than 16 code bits.
SurvivalShares survival(std::span<const float> x, double scale, const Format& f,
                        const CastPolicy& policy, const Backend& backend = {});

/// The shares at each of `scales`.
std::vector<SurvivalShares> sweep(std::span<const float> x, std::span<const double> scales,
                                  const Format& f, const CastPolicy& policy,
                                  const Backend& backend = {});

/// The scale with the largest representable share (among equals the most
/// accurate, then the smallest), and the largest accurate share at any scale.
struct BestScale {
  double scale = 0.0;
  SurvivalShares shares;
  double accurate = 0.0;
};
BestScale best_of(std::span<const double> scales, std::span<const SurvivalShares> shares);

}  // namespace fp8lab::experiments
