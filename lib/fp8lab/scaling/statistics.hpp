#pragma once
// What people read about a quantized tensor, in FP64.

#include <cstddef>

#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// Percentages are of all elements; an empty tensor has zeros everywhere.
/// Ranges leave out what is not finite; without anything left they are 0.
struct QuantizationStatistics {
  std::size_t count = 0;
  double underflow_percent = 0.0;  ///< non-zeros whose q is zero
  double overflow_percent = 0.0;   ///< rounded above max finite (`QuantizationLoss`), +-Inf too
  double saturated_percent = 0.0;  ///< |q| equals max finite
  double nan_percent = 0.0;        ///< q is NaN
  double relative_l2 = 0.0;  ///< of the dequantized tensor; NaN if it is not finite where x is
  double sqnr_db = 0.0;      ///< +Inf where the tensors are equal
  double scale_min = 0.0;    ///< over the tiles, of the scale that multiplies into FP8
  double scale_max = 0.0;
  double tile_range_mean = 0.0;  ///< log2(amax / smallest non-zero) inside a tile, in bits
  double tile_range_max = 0.0;
  double scale_overhead_percent = 0.0;  ///< bytes of scales over bytes of codes
};

/// Statistics of `q`, which was made from `x`. Throws `Error` if sizes differ.
QuantizationStatistics quantization_statistics(const FloatMatrix& x, const QuantizedTensor& q);

}  // namespace fp8lab
