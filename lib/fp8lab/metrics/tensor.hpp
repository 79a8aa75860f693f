#pragma once
// Statistics of a tensor before a cast, and of the losses of the cast.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Statistics of the magnitudes of the finite elements; NaN and infinities are
/// only counted. Without a non-zero finite element amax, min_nonzero and
/// decades are 0.
struct TensorStatistics {
  std::size_t count = 0;       ///< all elements
  std::size_t zeros = 0;       ///< of either sign
  std::size_t non_finite = 0;  ///< NaN and infinities
  double amax = 0.0;           ///< largest magnitude
  double min_nonzero = 0.0;    ///< smallest non-zero magnitude
  double decades = 0.0;        ///< log10(amax / min_nonzero)
  double rms = 0.0;            ///< root mean square of the finite elements

  /// Share of zeros among all elements, 0 to 1; 0 for an empty tensor.
  [[nodiscard]] double zero_share() const;
};

TensorStatistics tensor_statistics(std::span<const float> x);

/// Quantiles of the finite magnitudes, zeros included, for probabilities 0 to
/// 1, with linear interpolation between order statistics (type 7 of Hyndman and
/// Fan, NumPy's default). NaN where no element is finite. Throws `Error` for a
/// probability outside [0, 1].
std::vector<double> magnitude_quantiles(std::span<const float> x,
                                        std::span<const double> probabilities);

/// Losses of a scaled cast, in percent of all elements (0 for an empty
/// tensor).
struct QuantizationLoss {
  std::size_t count = 0;
  double underflow_percent = 0.0;  ///< non-zeros whose q is zero
  /// Elements with |x| * scale above max finite after rounding to nearest even: for E4M3 above 464.
  /// Values that round to max finite do not count. Exact; +-Inf counts, NaN does not.
  double overflow_percent = 0.0;
  double saturated_percent = 0.0;  ///< |q| equals max finite, with or without overflow
  double nan_percent = 0.0;        ///< q is NaN
};

/// Losses of q = cast(x * scale), with `codes` q in an 8-bit format and one scale,
/// which multiplies x, for each `tile` adjacent elements; tile 0 means one scale
/// for all. Throws `Error` if `codes` or
/// `scales` has the wrong size or the format is not an 8-bit one.
QuantizationLoss quantization_loss(std::span<const float> x, std::span<const std::uint8_t> codes,
                                   const Format& f, std::span<const float> scales,
                                   std::size_t tile = 0);

}  // namespace fp8lab
