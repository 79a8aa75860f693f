#pragma once
// The emulator on the device for batches of tiles, and bitwise comparison of
// outputs there: what makes 10^8 outputs an instruction cheap to check.

#include <cstddef>
#include <cstdint>

#include "emulated_core.hpp"

namespace fp8lab::cuda {

/// d [tiles, 64, 64] under `model` for a batch on the device (see ProbeKernel
/// for the shapes), whole or by halves (output_by_integers).
/// Integer arithmetic throughout.
void launch_emulated_tiles(const EmulatedModel& model, const EmulatedFormat& a_format,
                           const EmulatedFormat& b_format, Halves halves, const std::uint8_t* a,
                           const std::uint8_t* b, const float* c, float* d, int tiles, int steps);

/// Adds the number of words in which x and y differ to *count (device memory).
void launch_count_differences(const std::uint32_t* x, const std::uint32_t* y, std::size_t size,
                              unsigned long long* count);

}  // namespace fp8lab::cuda
