#pragma once
// The chip's own conversions, one instruction each, over ranges of inputs.

#include <cstddef>
#include <cstdint>

namespace fp8lab::cuda {

enum class Fp8 : int { e4m3, e5m2 };

/// cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32 of the binary32 bits first, first + 1,
/// ...; `count` even. codes: device memory.
void launch_cast_from_float(Fp8 to, std::uint64_t first, std::size_t count, std::uint8_t* codes);

/// The same of `count` values, even, in device memory.
void launch_cast_of_values(Fp8 to, const float* values, std::size_t count, std::uint8_t* codes);

/// cvt.rn.satfinite.{e4m3x2,e5m2x2}.f16x2 of all 2^16 halves.
void launch_cast_from_half(Fp8 to, std::uint8_t* codes);

/// cvt.rn.f16x2.{e4m3x2,e5m2x2} of all 2^8 codes.
void launch_cast_to_half(Fp8 from, std::uint16_t* halves);

/// The same conversion of a tensor, x * scale, as quantization does it: one
/// pass with the scale known, recording the amax of |x|.
void launch_quantize_one_read(const float* x, std::size_t size, float scale, std::uint8_t* codes,
                              float* amax);
/// The amax of |x| alone: the first of two reads. *amax must be 0 before.
void launch_amax(const float* x, std::size_t size, float* amax);
/// The second read: x * 448 / *amax.
void launch_quantize_with_amax(const float* x, std::size_t size, const float* amax,
                               std::uint8_t* codes);

}  // namespace fp8lab::cuda
