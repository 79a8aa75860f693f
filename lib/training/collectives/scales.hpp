#pragma once
// FP8 tensors of ranks whose scales differ, brought to one scale before a
// collective that cannot carry scales (FP8-LM, arXiv 2310.18313, section 2.1).
// Specified in docs/specification/collectives.md.

#include <cstdint>
#include <span>

#include "training/collectives/wire.hpp"

namespace fp8lab {

/// s_g = the smallest of the ranks' scales, which multiply into FP8: no rank's
/// codes then saturate. Throws `Error` for none, and for a scale that is not
/// positive and finite.
float unified_scale(std::span<const float> scales);

/// codes[i] = cast(value of codes[i] * (to / from)), in place: brings a tensor
/// that was cast with the scale `from` to the scale `to`. The ratio and the product are
/// rounded to binary32. A second rounding: not what one cast with `to` gives.
/// FP8 wires only, casts on `backend` where that has them. Throws `Error` for another wire and a
/// ratio that is not positive and finite.
WireCounts requantize(const WireFormat& wire, std::span<std::byte> codes, float from, float to,
                      const Backend& backend = {});

/// The scale of a sum of `ranks` tensors of scale `unified`: their mean is
/// sum / (ranks * unified). Rounded to binary32. Throws `Error` for ranks < 1.
float mean_scale(float unified, int ranks);

}  // namespace fp8lab
