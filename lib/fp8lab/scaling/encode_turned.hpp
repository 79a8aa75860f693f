#pragma once
// The transposed copy of a quantized tensor. docs/lab/scaling.md says how memory is read.

#include "fp8lab/scaling/encode_tiles.hpp"

namespace fp8lab::scaling_detail {

/// Fills `turned`, which has its shape [x.k, x.rows], and, where `with_original` is set, `q`
/// too: one read serves both where tiles allow. Else `q` is finished.
void encode_turned(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                   QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution);

}  // namespace fp8lab::scaling_detail
